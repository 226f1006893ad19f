"""Figures over time and training: the incumbent, the front, learning curves, and what the workers did."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Status, Trial
from tuner.search.usage import unit_of
from tuner.spec.quantities import counted, format_duration
from tuner.visualization.style import (
    BLUE,
    GREY,
    ORANGE,
    PALETTE,
    SCALE,
    STATUS_COLOURS,
    VERMILLION,
    figure,
    is_number,
    label,
    objective_label,
    view,
)
from tuner.visualization.thinning import MOST_TRIALS, curve_points, spread
from tuner.visualization.timeline import TimedReport, Timeline, TrialSpan

if TYPE_CHECKING:
    import plotly.graph_objects as go

TIME_UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))

_LANE, _LEAST_LANES = 26, 180
"""Pixels of a worker in the timeline, and of all of them at least."""

_MOST = 620
"""Pixels of the timeline at most."""


MOST_BARS = 2000
"""Bars of the timeline at most; one for each worker in any case."""


def time_axis(seconds: float) -> tuple[float, str]:
    """(what a time axis of so many seconds is divided by, its unit)."""
    return next((unit, name) for unit, name in TIME_UNITS if seconds >= 2 * unit or unit == 1)


def named(trial: Trial | None) -> str:
    """``#11 (f70ac63a)``, as a figure may show it."""
    return label(trial.label) if trial else "?"


def incumbent(results: ResultSet, told: Timeline) -> tuple[go.Figure, str]:
    """The best value so far over the time of the search, and each trial's own best; and the caption."""
    import plotly.graph_objects as go

    objective, (unit, unit_name) = results.objectives[0], time_axis(told.elapsed)
    best = spread(told.incumbents, MOST_TRIALS)
    x = [moment.seconds / unit for moment in best]
    y = [objective.sign * moment.point[0] for moment in best]
    hover = [f"trial {named(results.get(m.trial))}, report {m.step}" for m in best]
    own: dict[str, TimedReport] = {}
    for moment in told.moments:
        before = own.get(moment.trial)
        if before is None or (moment.is_feasible, moment.point[0]) > (before.is_feasible, before.point[0]):
            own[moment.trial] = moment
    dots = spread([*own.values()], MOST_TRIALS)
    every = [objective.sign * moment.point[0] for moment in dots]

    def scattered(chosen: Sequence[TimedReport], name: str, symbol: str) -> Any:
        return go.Scatter(
            x=[moment.seconds / unit for moment in chosen],
            y=[objective.sign * moment.point[0] for moment in chosen],
            text=[named(results.get(moment.trial)) for moment in chosen],
            mode="markers",
            name=name,
            marker={"color": GREY, "size": 5, "opacity": 0.5, "symbol": symbol},
            hovertemplate="trial %{text}: %{y:.6g}<extra></extra>",
        )

    others = [scattered([moment for moment in dots if moment.is_feasible], "each trial's best", "circle")]
    if broken := [moment for moment in dots if not moment.is_feasible]:
        others.append(scattered(broken, "of a trial that breaks a limit", "x"))
    line = go.Scatter(
        x=[*x, told.elapsed / unit],
        y=[*y, y[-1]],
        text=[*hover, "end of the search"],
        mode="lines+markers",
        name="best so far",
        line={"color": BLUE, "width": 2.5, "shape": "hv"},
        marker={"size": 7},
        hovertemplate=f"%{{y:.6g}} at %{{x:.4g}} {unit_name}<br>%{{text}}<extra></extra>",
    )
    extent, _ = view(every, objective)
    drawn = figure(
        [*others, line],
        {"title": {"text": f"time of the search ({unit_name})"}, "rangemode": "tozero"},
        {"title": {"text": objective_label(objective)}, "range": extent},
    )
    some = f" Dots: {len(dots)} of the {len(own)} trials." if len(dots) < len(own) else ""
    return drawn, f"{len(best)} times a report was better than all before it.{some}"


def front(results: ResultSet) -> tuple[go.Figure, str]:
    """Trials by the first two objectives, with the front; a third one is their colour; and the caption."""
    import plotly.graph_objects as go

    on_front = {trial.id for trial in results.front}
    trials = [t for t in results.trials if t.best and all(map(math.isfinite, results.point(t.best)))]
    first, second, *more = results.objectives
    values = {trial.id: results.values(trial.best) for trial in trials if trial.best}
    rest, best = ([t for t in trials if (t.id in on_front) is side] for side in (False, True))
    best.sort(key=lambda trial: values[trial.id][first.metric])
    count = len(trials)
    rest, best = spread(rest, MOST_TRIALS), spread(best, MOST_TRIALS)

    def points(chosen: Sequence[Trial], name: str, **style: Any) -> Any:
        return go.Scatter(
            x=[values[t.id][first.metric] for t in chosen],
            y=[values[t.id][second.metric] for t in chosen],
            text=[named(t) for t in chosen],
            name=name,
            hovertemplate="trial %{text}<br>%{x:.6g}<br>%{y:.6g}<extra></extra>",
            **style,
        )

    colour: dict[str, Any] = {"color": BLUE}
    if more:
        third = [values[t.id][more[0].metric] for t in best]
        bar = {"title": {"text": label(more[0].metric), "side": "right"}, "thickness": 12}
        colour = {"color": third, "colorscale": SCALE, "colorbar": bar}
    traces = [
        points(rest, "other trials", mode="markers", marker={"color": GREY, "size": 6, "opacity": 0.6}),
        points(
            best, "Pareto front", mode="lines+markers", line={"color": BLUE, "width": 1}, marker={"size": 9} | colour
        ),
    ]
    titles = [{"title": {"text": objective_label(objective)}} for objective in (first, second)]
    left_out = [objective.metric for objective in more[1:]]
    told = f" Not shown: {', '.join(left_out)}." if left_out else ""
    told += f" Drawn are {len(rest) + len(best)} of {count} trials." if len(rest) + len(best) < count else ""
    return figure(traces, *titles), f"Each trial stands where its best report in {first.metric} was.{told}"


def _fate(trial: Trial) -> tuple[float, str]:
    """What became of a trial, as the legend names it, and the place of that in the legend."""
    if trial.status == "stopped":
        return (trial.rung, f"stopped at rung {trial.rung}") if trial.rung is not None else (math.inf, "stopped")
    order: list[Status] = ["failed", "pending", "paused", "running", "completed"]
    return (math.inf, trial.status) if trial.status not in order else (1e9 + order.index(trial.status), trial.status)


def learning_curves(results: ResultSet, trials: Sequence[Trial]) -> tuple[go.Figure, int] | None:
    """The curves of ``trials``, one trace for all that came to the same rung; how many values lie outside of the axis.

    None if nothing was reported.
    """
    import numpy as np
    import plotly.graph_objects as go

    unit, metric, objective = unit_of(results), results.metric, results.objectives[0]
    fates: dict[tuple[float, str], list[Trial]] = {}
    for trial in trials:
        if trial.reports:
            fates.setdefault(_fate(trial), []).append(trial)
    if not fates:
        return None
    traces, every = [], []
    rungs = itertools.cycle([ORANGE, *(c for c in PALETTE[2:6] if c != ORANGE)])
    for (_, name), alike in sorted(fates.items()):
        rows = [row for trial in alike for row in _curve(curve_points(trial.reports, len(trials)), trial, unit, metric)]
        every += [y for _, y, _ in rows]
        columns = np.array(rows, np.float32).T
        colour = STATUS_COLOURS.get(name) or next(rungs)
        lone = all(len(trial.reports) == 1 for trial in alike)
        traces.append(
            go.Scatter(
                x=columns[0],
                y=columns[1],
                customdata=columns[2],
                name=f"{name} ({len(alike)})",
                mode="markers" if lone else "lines",
                line={"color": colour, "width": 1.2},
                marker={"color": colour, "size": 5},
                opacity=0.75 if len(trials) < 100 else 0.5,
                hovertemplate=f"trial #%{{customdata}}<br>{label(unit)} %{{x}}: %{{y:.6g}}<extra>{name}</extra>",
            )
        )
    if (best := results.best) is not None and not results.has_front:
        points = [*_curve(curve_points(best.reports, 10), best, unit, metric)]
        traces.append(
            go.Scatter(
                x=[epoch for epoch, _, _ in points],
                y=[value for _, value, _ in points],
                name=f"the best, #{best.number}",
                mode="lines+markers",
                line={"color": VERMILLION, "width": 3},
                hovertemplate=f"{label(unit)} %{{x}}: %{{y:.6g}}<extra>the best, #{best.number}</extra>",
            )
        )
    extent, hidden = view(every, objective)
    x_title = "reports" if unit == "training_iteration" else label(unit)
    return figure(
        traces,
        {"title": {"text": x_title}},
        {"title": {"text": objective_label(objective)}, "range": extent},
        height=440,
    ), hidden


def _curve(reports: Sequence[Report], trial: Trial, unit: str, metric: str) -> Iterator[tuple[float, float, float]]:
    """Epoch, value and the trial's number, with a gap before it, and where it went back to another one's checkpoint."""
    before = math.inf
    for report in reports:
        epoch = report.progress(unit)
        if epoch <= before:
            yield (math.nan,) * 3
        yield epoch, _plain(report.metrics.get(metric)), trial.number
        before = epoch


def _plain(value: Any) -> float:
    """A number that a figure can show; NaN, which leaves a gap, for anything else."""
    return float(value) if is_number(value) else math.nan


def timeline(results: ResultSet, told: Timeline) -> tuple[go.Figure, str]:
    """Which worker ran what when; and, in words, how much of the time they were idle."""
    import plotly.graph_objects as go

    unit, unit_name = time_axis(told.elapsed)
    by_status: dict[str, list[Any]] = {}
    bars = merged(told.stretches)
    for stretch, count in bars:
        trial = results.get(stretch.trial)
        who = f"trial {named(trial)}" if count == 1 else f"{count} trials in a row, the longest {named(trial)}"
        by_status.setdefault(trial.status if trial else "pending", []).append((stretch, who))
    traces = [
        go.Bar(
            orientation="h",
            base=[s.begin / unit for s, _ in shown],
            x=[(s.end - s.begin) / unit for s, _ in shown],
            y=[s.lane + 1 for s, _ in shown],
            text=[f"{who}<br>{s.begin:.1f} s to {s.end:.1f} s" for s, who in shown],
            textposition="none",
            name=status,
            marker={"color": STATUS_COLOURS[status], "line": {"width": 0.5, "color": "rgba(255,255,255,.7)"}},
            hovertemplate="%{text}<extra></extra>",
        )
        for status, shown in sorted(by_status.items(), key=lambda item: list(STATUS_COLOURS).index(item[0]))
    ]
    lanes = _slots(results, told)
    drawn = figure(
        traces,
        {"title": {"text": f"time of the search ({unit_name})"}, "range": [0, told.elapsed / unit]},
        {"title": {"text": "worker"}, "range": [lanes + 0.5, 0.5], **({"dtick": 1} if lanes <= 16 else {})},
        height=min(_MOST, max(_LEAST_LANES, 90 + _LANE * lanes)),
        barmode="overlay",
        bargap=0.15,
    )
    count = len(told.stretches)
    caption = _idle(told, lanes)
    if len(bars) < count:
        caption += f" Drawn are {count} stays, with neighbours as one bar in the colour of the longest."
    return drawn, caption


def merged(stretches: Sequence[TrialSpan]) -> list[tuple[TrialSpan, int]]:
    """At most `MOST_BARS` bars, each of as many neighbouring stays on its worker as it counts.

    A bar has the trial of its longest stay. All bars hold the same number of stays, except the last of a worker.
    """
    every = 1
    lanes: dict[int, list[TrialSpan]] = {}
    for stretch in stretches:
        lanes.setdefault(stretch.lane, []).append(stretch)
    while sum(math.ceil(len(stays) / every) for stays in lanes.values()) > max(MOST_BARS, len(lanes)):
        every += 1
    groups = [stays[i : i + every] for stays in lanes.values() for i in range(0, len(stays), every)]
    longest = [max(group, key=lambda stay: stay.end - stay.begin) for group in groups]
    return [
        (TrialSpan(most.trial, group[0].begin, group[-1].end, most.lane), len(group))
        for group, most in zip(groups, longest, strict=True)
    ]


def _slots(results: ResultSet, told: Timeline) -> int:
    slots = results.provenance.get("slots")
    return max(slots if isinstance(slots, int) else 0, told.lanes)


def _idle(told: Timeline, lanes: int) -> str:
    """How much of the workers' time went into trials, and the longest time that one stood idle."""
    gaps: list[tuple[float, float]] = []
    busy = 0.0
    by_lane: dict[int, list[TrialSpan]] = {}
    for stretch in told.stretches:
        by_lane.setdefault(stretch.lane, []).append(stretch)
    for lane in range(lanes):
        until = 0.0
        for stretch in by_lane.get(lane, []):
            gaps.append((stretch.begin - until, until))
            busy += stretch.end - stretch.begin
            until = stretch.end
        gaps.append((told.elapsed - until, until))
    longest, since = max(gaps)
    said = f"{counted(lanes, 'worker')} ran trials for {busy / (lanes * told.elapsed):.0%} of the time."
    if longest >= 0.01 * told.elapsed:
        last = since + longest >= told.elapsed
        when = "at the end of the search" if last else f"from {format_duration(since)} into the search on"
        said += f" The longest that one stood idle: {format_duration(longest)}, {when}."
    return said
