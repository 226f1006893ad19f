"""Figures of the parameters: what matters, where the good values lie, and how two of them play together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.spec.values import format_number
from tuner.visualization.axes import Axis
from tuner.visualization.curves import named
from tuner.visualization.importance import Importance
from tuner.visualization.style import BLUE, GREY, ORANGE, SCALE, SKY, figure, label, view
from tuner.visualization.thinning import MOST_TRIALS

if TYPE_CHECKING:
    import plotly.graph_objects as go

_ABSENT = -0.12
"""The point at which a line of the parallel coordinates passes a parameter that its trial does not have."""

_BEST = 10
"""Trials that are drawn as the best ones at most."""

_GRID = 40
"""Points of the contour's grid along each axis."""

LEAST_CONTOUR = 10
"""Trials that a contour is drawn from at least."""


MOST_DOTS = 300
"""Trials that a figure shows as dots: a browser takes its time with each, and in a small one more hide each other."""


def dotted(count: int, most: int = MOST_DOTS) -> list[int]:
    """Ranks of the trials that are shown, as dots: the best third of ``most``, and of the others every so many."""
    best = most // 3
    every = max(1, math.ceil((count - best) / (most - best)))
    return [rank for rank in range(count) if rank < best or (rank - best) % every == 0]


def values(results: ResultSet, trials: Sequence[Trial]) -> list[float]:
    """The first objective of trials that all have a result."""
    return [results.value(trial.best) for trial in trials if trial.best]


def importance_bars(found: Importance) -> go.Figure:
    """The share of each parameter with its interval, the largest on top; grey if it is no more than chance."""
    import plotly.graph_objects as go

    names, shares = [label(name) for name in found.shares][::-1], list(found.shares.values())[::-1]
    bars = go.Bar(
        orientation="h",
        x=[share.value for share in shares],
        y=names,
        marker={"color": [GREY if share.is_chance else BLUE for share in shares]},
        error_x={
            "array": [share.high - share.value for share in shares],
            "arrayminus": [share.value - share.low for share in shares],
            "symmetric": False,
            "thickness": 1,
            "width": 3,
        },
        customdata=[[share.low, share.high, " · no more than chance" * share.is_chance] for share in shares],
        hovertemplate="%{y}: %{x:.1%} (%{customdata[0]:.0%} to %{customdata[1]:.0%})%{customdata[2]}<extra></extra>",
    )
    told = [
        {
            "x": share.high,
            "y": name,
            "text": f"{share.value:.0%}{' (chance)' * share.is_chance}",
            "showarrow": False,
            "xanchor": "left",
            "xshift": 6,
        }
        for name, share in zip(names, shares, strict=True)
    ]
    ends = {"range": [0, max(*(share.high for share in shares), 0.01) * 1.2], "tickformat": ".0%"}
    title = {"title": {"text": "share of the importance (PED-ANOVA)"}}
    upright = {"type": "category", "automargin": True}
    return figure([bars], title | ends, upright, height=110 + 26 * len(names), annotations=told)


def parallel(results: ResultSet, trials: Sequence[Trial], axes: Sequence[Axis]) -> go.Figure:
    """A line a trial through its parameters to its objective. ``trials``: best first, as the axes have them."""
    import plotly.graph_objects as go

    objective, found = results.objectives[0], values(results, trials)
    extent, _ = view(found, objective)
    low, high = extent or [min(found), max(found)]
    last = Axis(objective.metric, tuple(min(max(value, low), high) for value in found), low, high)
    every = [*axes, last]
    groups = _groups(len(trials))
    traces, drawn = [], dotted(len(trials), MOST_TRIALS)
    for (name, first, end), (colour, width) in reversed(list(zip(groups, _STROKES, strict=False))):
        xs: list[float | None] = []
        ys: list[float | None] = []
        numbers: list[int | None] = []
        for i in (rank for rank in drawn if first <= rank < end):
            xs += [*range(len(every)), None]
            ys += [*(_height(axis, i) for axis in every), None]
            numbers += [*[trials[i].number] * len(every), None]
        traces.append(
            go.Scatter(
                x=xs,
                y=ys,
                customdata=numbers,
                mode="lines",
                name=name,
                line={"color": colour, "width": width},
                opacity=1.0 if width > 2 else 0.6,
                hovertemplate="trial #%{customdata}<extra></extra>",
            )
        )
    absent = any(None in axis.positions for axis in axes)
    return figure(
        traces,
        {
            "tickmode": "array",
            "tickvals": list(range(len(every))),
            "ticktext": [f"{label(axis.name, 18)}{' (log)' * axis.log}" for axis in every],
            "side": "top",
            "range": [-0.35, len(every) - 0.5],
            "showgrid": False,
        },
        {"visible": False, "range": [(_ABSENT if absent else 0) - 0.06, 1.06]},
        height=460,
        margin={"l": 24, "r": 40, "t": 12, "b": 12},
        legend={"orientation": "h", "itemsizing": "constant", "y": -0.03, "yanchor": "top", "x": 0, "xanchor": "left"},
        shapes=[_upright(x) for x in range(len(every))],
        annotations=[mark for x, axis in enumerate(every) for mark in _marks(axis, x)],
    )


_STROKES = ((ORANGE, 2.4), (BLUE, 1.4), (GREY, 0.7))
"""Colour and width of the best, of the good and of the other trials."""


def _groups(count: int) -> list[tuple[str, int, int]]:
    """(name, first rank, end) of the best trials, the rest of the best quarter, and the others."""
    best, quarter = min(max(1, round(0.05 * count)), _BEST), max(1, round(0.25 * count))
    names = ("the best" if best == 1 else f"the best {best}"), f"the best quarter ({quarter})", "the others"
    cuts = [0, best, quarter, count]
    return [(name, a, b) for name, a, b in zip(names, cuts, cuts[1:], strict=False) if a < b]


def _height(axis: Axis, i: int) -> float:
    position = axis.positions[i]
    return _ABSENT if position is None else axis.unit(position)


def _upright(x: float) -> dict[str, Any]:
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": {"color": GREY, "width": 1}}


def _marks(axis: Axis, x: float) -> list[dict[str, Any]]:
    """The values beside a line of the parallel coordinates."""
    if axis.categories:
        marks = [(axis.unit(i), text) for i, text in enumerate(axis.categories)]
        marks = marks[:: math.ceil(len(marks) / 12)]
    else:
        marks = [(unit, format_number(axis.at(unit))) for unit in (0, 0.25, 0.5, 0.75, 1)]
    if None in axis.positions:
        marks.append((_ABSENT, "absent"))
    style = {
        "showarrow": False,
        "xanchor": "left",
        "xshift": 3,
        "font": {"size": 10},
        "bgcolor": "rgba(128,128,128,.25)",
    }
    return [{"x": x, "y": y, "text": label(text, 12), **style} for y, text in marks]


def slice_of(results: ResultSet, trials: Sequence[Trial], axis: Axis) -> go.Figure:
    """The objective of each trial against one of its parameters, whole and early-stopped trials told apart."""
    import plotly.graph_objects as go

    objective, found = results.objectives[0], values(results, trials)
    shown = [i for i in dotted(len(trials)) if axis.positions[i] is not None]
    whole, cut = ([i for i in shown if (trials[i].status == "completed") is side] for side in (True, False))
    traces = [
        go.Scatter(
            x=[_spread(axis, i, trials[i].number) for i in chosen],
            y=[found[i] for i in chosen],
            text=[f"trial {named(trials[i])}<br>{label(axis.name)} {_shown(axis, i)}" for i in chosen],
            mode="markers",
            marker=marker,
            hovertemplate="%{text}<br>%{y:.6g}<extra></extra>",
        )
        for chosen, marker in (
            (cut, {"color": "rgba(0,0,0,0)", "size": 7, "line": {"color": ORANGE, "width": 1.3}}),
            (whole, {"color": BLUE, "size": 7, "opacity": 0.8}),
        )
    ]
    extent, _ = view(found, objective)
    y = {"title": {"text": label(objective.metric)}, "range": extent}
    margin = {"l": 56, "r": 8, "t": 8, "b": 44}
    return figure(traces, axis.plotly(), y, height=260, margin=margin, showlegend=False)


_GOLDEN_RATIO = 0.618034


def _spread(axis: Axis, i: int, trial_number: int) -> float:
    """The place of a trial: those of one category are side by side, so that they do not hide each other."""
    position = axis.positions[i]
    assert position is not None
    if not axis.categories:
        return position
    within = trial_number * _GOLDEN_RATIO % 1  # 0 to 1: consecutive trials are far apart
    return position + 0.5 * within - 0.25


def _shown(axis: Axis, i: int) -> str:
    position = axis.positions[i]
    assert position is not None
    return label(axis.categories[int(position)]) if axis.categories else f"{position:.6g}"


def pair(axes: Sequence[Axis], found: Importance | None) -> tuple[Axis, Axis] | None:
    """The two ranges that matter most; in the order of the search space where importance is not known."""
    ranges = [axis for axis in axes if not axis.categories and None not in axis.positions]
    ranges = ranges if len(ranges) >= 2 else [axis for axis in axes if not axis.categories]
    if found is not None:
        ranges.sort(key=lambda axis: -found.of(axis.name))
    return (ranges[0], ranges[1]) if len(ranges) >= 2 else None


def contour(results: ResultSet, trials: Sequence[Trial], x: Axis, y: Axis) -> go.Figure | None:
    """The objective over two parameters, interpolated linearly between trials; None if they are too few."""
    import numpy as np
    import plotly.graph_objects as go
    from scipy.interpolate import griddata
    from scipy.spatial import QhullError

    objective, found = results.objectives[0], values(results, trials)
    shown = [i for i in range(len(trials)) if x.positions[i] is not None and y.positions[i] is not None]
    if len(shown) < LEAST_CONTOUR:
        return None
    extent, _ = view([found[i] for i in shown], objective)
    low, high = extent or [min(found[i] for i in shown), max(found[i] for i in shown)]
    z = np.clip([found[i] for i in shown], low, high)
    places = [(x.unit(x.positions[i] or 0), y.unit(y.positions[i] or 0)) for i in shown]
    grid = np.linspace(0, 1, _GRID)
    try:
        heights = griddata(places, z, tuple(np.meshgrid(grid, grid)), method="linear")
    except QhullError:  # all of them on one line
        return None
    bar = {"title": {"text": label(objective.metric), "side": "right"}, "thickness": 12}
    colours = {"colorscale": SCALE, "reversescale": objective.mode == "min", "zmin": low, "zmax": high}
    filled = go.Contour(
        x=[x.at(unit) for unit in grid],
        y=[y.at(unit) for unit in grid],
        z=heights.astype(np.float32),
        **colours,
        colorbar=bar,
        line={"width": 0.5},
        ncontours=16,
        hoverinfo="skip",
    )
    seen = [shown[i] for i in dotted(len(shown))]
    dots = go.Scatter(
        x=[x.positions[i] for i in seen],
        y=[y.positions[i] for i in seen],
        text=[f"trial {named(trials[i])}: {format_number(found[i])}" for i in seen],
        mode="markers",
        marker={"size": 6, "color": "rgba(255,255,255,.9)", "line": {"width": 1, "color": "#222222"}},
        hovertemplate="%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
    )
    star = go.Scatter(
        x=[x.positions[shown[0]]],
        y=[y.positions[shown[0]]],
        text=[f"the best of them: trial {named(trials[shown[0]])}"],
        mode="markers",
        marker={"size": 14, "symbol": "star", "color": SKY, "line": {"width": 1, "color": "#222222"}},
        hovertemplate="%{text}<extra></extra>",
    )
    return figure([filled, dots, star], x.plotly(), y.plotly(), height=460, showlegend=False)
