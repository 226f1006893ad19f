"""A run as a notebook shows it: the headline, curves, and the best trials. No script, nothing from elsewhere."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from html import escape

from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.spec.quantities import format_duration
from tuner.spec.values import format_number
from tuner.visualization.curves import time_axis
from tuner.visualization.style import BLUE, GREY, VERMILLION
from tuner.visualization.text_tables import config_line, headline
from tuner.visualization.thinning import curve_points, shown, spread
from tuner.visualization.timeline import chronicle

MOST_CURVES = 100
"""Trials whose learning curves are drawn at most."""

MOST_ROWS = 10
"""Trials in the table at most."""

_SIZE = (9.0, 2.8)
"""Inches of the two figures together."""


def overview(results: ResultSet, state: str) -> str:
    """The whole output of a cell, as HTML. ``state``: how the run stands, in one line."""
    lines = [state, *headline(results)]
    head = "".join(f"<div>{escape(line)}</div>" for line in lines)
    name = f"<div><b>{escape(results.name)}</b></div>"
    return f'<div class="tuner-run">{name}{head}{figures(results)}{table(results)}</div>'


def table(results: ResultSet, most: int = MOST_ROWS) -> str:
    """The best trials, as HTML; empty if no trial has a result."""
    best = results.rank(results.trials)[:most]
    if not best:
        return ""
    metrics = results.compared_metrics
    names = ["#", "trial", "status", *metrics, "steps", "time", "configuration"]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = "".join(f"<tr>{_cells(results, trial)}</tr>" for trial in best)
    more = len(results.trials) - len(best)
    rest = f"<div>and {more:,} more, in trials_dataframe()</div>" if more else ""
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div style="overflow-x:auto">{body}</div>{rest}'


def _cells(results: ResultSet, trial: Trial) -> str:
    values = results.values(trial.best).values() if trial.best else []
    texts = [
        str(trial.number),
        trial.id,
        trial.status,
        *(format_number(value) for value in values),
        str(trial.steps),
        format_duration(trial.seconds),
    ]
    cells = "".join(f"<td>{escape(text)}</td>" for text in texts)
    return f'{cells}<td style="text-align:left">{escape(config_line(trial.config))}</td>'


def figures(results: ResultSet) -> str:
    """The best value over time and the learning curves, as an image; empty if nothing was reported."""
    from matplotlib.figure import Figure

    drawn = [trial for trial in shown(results, MOST_CURVES) if trial.reports]
    if not drawn:
        return ""
    figure = Figure(figsize=_SIZE, layout="constrained")
    over_time, curves = figure.subplots(1, 2)
    told, sign = chronicle(results), results.objectives[0].sign
    unit, unit_name = time_axis(told.elapsed)
    if lead := told.incumbents:
        moments = [*(moment.seconds / unit for moment in lead), told.elapsed / unit]
        values = [*(sign * moment.point[0] for moment in lead), sign * lead[-1].point[0]]
        over_time.step(moments, values, where="post", color=BLUE)
    over_time.set(xlabel=f"time of the search ({unit_name})", ylabel=f"best {results.metric}")
    best = results.best
    for trial in drawn:
        is_best = best is not None and trial.id == best.id
        steps, reached = _curve(results, trial, len(drawn))
        colour, width, order = (VERMILLION, 1.8, 3) if is_best else (GREY, 0.8, 2)
        marker = "." if len(steps) == 1 else ""
        curves.plot(steps, reached, color=colour, linewidth=width, zorder=order, marker=marker)
    curves.xaxis.get_major_locator().set_params(integer=True)
    curves.set(xlabel="report", ylabel=results.metric)
    for axes in (over_time, curves):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    text = io.StringIO()
    figure.savefig(text, format="svg")
    svg = text.getvalue()
    label = f"Best {results.metric} over time, and the learning curves"
    picture = svg[svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)
    return f'<div style="background:#fff;max-width:54rem;overflow-x:auto">{picture}</div>'


def _curve(results: ResultSet, trial: Trial, trials: int) -> tuple[Sequence[int], Sequence[float]]:
    points = [(r.step, results.value(r)) for r in spread(curve_points(trial.reports, trials), 200)]
    known = [(step, value) for step, value in points if math.isfinite(value)]
    return [step for step, _ in known], [value for _, value in known]
