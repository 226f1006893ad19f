"""What all trials consumed together over the time of a search: GPU use, power, GPU memory and host memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.runs.consumption import Consumption
from tuner.runs.results import ResultSet
from tuner.visualization.curves import time_axis
from tuner.visualization.style import BLUE, GREEN, ORANGE, PURPLE, figure
from tuner.visualization.timeline import Timeline

if TYPE_CHECKING:
    import numpy as np
    import plotly.graph_objects as go
    from numpy.typing import NDArray

BINS = 300
"""Parts into which the time is divided at most."""

_ROUNDING = 1e-6
"""Of a part: no trial ran in so little of it, which is what sums of floats leave."""

SHOWN = {
    "gpu_use": ("GPU use (%)", BLUE),
    "gpu_watts": ("GPU power (W)", ORANGE),
    "gpu_gib": ("GPU memory (GiB)", PURPLE),
    "host_gib": ("host memory (GiB)", GREEN),
}
"""What a figure shows, each with its axis."""


@dataclass(frozen=True)
class Spans:
    """Times between two reports of a trial, and what it consumed in them."""

    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    value: NDArray[np.float64]

    def integral(self, edges: NDArray[np.float64], values: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Between each two ``edges``: the sum of the value times the seconds, over all spans."""
        import numpy as np

        values = self.value if values is None else values
        return np.diff(_ramps(self.begin, values, edges) - _ramps(self.end, values, edges))


def _ramps(times: NDArray[np.float64], values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """At each edge: the sum over ``times`` before it of the value times the seconds since."""
    import numpy as np

    order = np.argsort(times)
    ahead = np.searchsorted(times[order], edges)
    total = np.concatenate([[0.0], np.cumsum(values[order])])[ahead]
    moment = np.concatenate([[0.0], np.cumsum((values * times)[order])])[ahead]
    return np.asarray(edges * total - moment)


def spans(results: ResultSet, told: Timeline) -> dict[str, Spans]:
    """Of each part of a `Consumption` that is shown and was measured, in the order of `SHOWN`."""
    import numpy as np

    begins: dict[str, list[float]] = {}
    for stretch in told.stretches:
        begins.setdefault(stretch.trial, []).append(stretch.begin)
    consumed: dict[str, dict[int, Consumption]] = {
        trial.id: {report.step: report.consumption for report in trial.reports if report.consumption}
        for trial in results.trials
    }
    share = min(1.0, _gpus_of_a_trial(results) or 1.0)  # of the power of a GPU that trials share
    before: dict[str, float] = {}
    rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in SHOWN}
    for moment in told.moments:
        stays = begins.get(moment.trial, [])
        stay = bisect_right(stays, moment.seconds)
        begin = max(before.get(moment.trial, 0.0), stays[stay - 1] if stay else 0.0)
        before[moment.trial] = moment.seconds
        known = consumed.get(moment.trial, {}).get(moment.step)
        if known is None or not moment.seconds > begin:  # NaN if it is not known when it came
            continue
        for name, found in rows.items():
            if (value := getattr(known, name)) is not None:
                found.append((begin, moment.seconds, value * share if name == "gpu_watts" else value))
    return {name: Spans(*np.array(found).T) for name, found in rows.items() if found}


def busy_share(results: ResultSet, known: Mapping[str, Spans], told: Timeline) -> float | None:
    """The mean use of all GPUs over the whole search, in per cent, 0 while one has no trial.

    None if it is not known: the use is that of a GPU, whoever uses it, and not of a trial that shares one.
    """
    found, each = known.get("gpu_use"), _gpus_of_a_trial(results)
    total: float = sum(node.get("GPU", 0.0) for node in results.provenance.get("cluster", []))
    if found is None or told.elapsed <= 0 or each < 1 or total < each:
        return None
    return float((found.value * (found.end - found.begin)).sum()) * each / (total * told.elapsed)


def _gpus_of_a_trial(results: ResultSet) -> float:
    """As `run` asked Ray for it."""
    of_worker: float = results.provenance.get("trial_resources", {}).get("GPU", 0.0)
    workers: int = results.section("resources").get("workers", 1)
    return of_worker * workers


def use_over_time(known: Mapping[str, Spans], told: Timeline) -> go.Figure | None:
    """Curves of what was measured, each on an axis of its own; None if nothing was."""
    import numpy as np
    import plotly.graph_objects as go

    if not known or told.elapsed <= 0 or not told.is_whole:
        return None
    unit, unit_name = time_axis(told.elapsed)
    edges = np.linspace(0, told.elapsed, BINS + 1)
    traces: list[Any] = []
    axes: dict[str, Any] = {}
    for row, (name, found) in enumerate(known.items()):
        title, colour = SHOWN[name]
        seconds = found.integral(edges, np.ones_like(found.value))
        width = np.where(seconds > _ROUNDING * edges[1], seconds, np.inf) if name == "gpu_use" else edges[1]
        axis = "" if row == 0 else str(row + 1)
        traces.append(
            go.Scatter(
                x=(edges[:-1] / unit).round(4),
                y=np.maximum(found.integral(edges) / width, 0).round(3),
                name=title,
                yaxis=f"y{axis}",
                line={"color": colour, "shape": "hv", "width": 1.5},
                hovertemplate=f"%{{x}} {unit_name}: %{{y}}<extra>{title}</extra>",
            )
        )
        gap = 0.06
        height = (1 - gap * (len(known) - 1)) / len(known)
        top = 1 - row * (height + gap)
        most = {"range": [0, 100]} if name == "gpu_use" else {"rangemode": "tozero"}
        axes[f"yaxis{axis}"] = {"domain": [max(0.0, top - height), top], "title": {"text": title}, **most}
    first = axes.pop("yaxis")
    return figure(
        traces,
        {
            "title": {"text": f"time of the search ({unit_name})"},
            "range": [0, told.elapsed / unit],
            "anchor": f"y{len(known)}" if len(known) > 1 else "y",
        },
        first,
        height=90 + 150 * len(known),
        showlegend=False,
        **{name: {"zeroline": False, "anchor": "x", **axis} for name, axis in axes.items()},
    )
