"""Several runs side by side: how good each was when, and what it had spent by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from tuner.errors import InputError
from tuner.runs.results import ResultSet
from tuner.search.usage import REPORTS
from tuner.spec.objective import Objective
from tuner.visualization.curves import time_axis
from tuner.visualization.document import Section, document, notices, table
from tuner.visualization.style import PALETTE, figure, label, objective_label, view
from tuner.visualization.text_tables import objectives_line
from tuner.visualization.timeline import TimedReport, Timeline, chronicle

if TYPE_CHECKING:
    import plotly.graph_objects as go

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
"""Besides the colours, for print in grey and for more runs than there are colours."""


@dataclass(frozen=True)
class ComparedRun:
    """A run in the race."""

    results: ResultSet
    told: Timeline

    def reached(self, point: float) -> TimedReport | None:
        """The first report that was as good as ``point``, a value of the first objective to be made large."""
        return next((moment for moment in self.told.incumbents if moment.point[0] >= point), None)


@dataclass(frozen=True)
class Row:
    """What a run came to."""

    run: str
    best: float | None
    """Of the first objective, at any fidelity; None if nothing was reported."""
    seconds_to_best: float | None
    """Of search, until the best value was reported."""
    seconds_to_target: float | None
    """None if the target was not reached."""
    epochs_to_target: float | None
    seconds: float | None
    """Of search, in all; None, as all times and epochs, of a run whose reports are lost."""
    epochs: float | None
    """Spent over all trials."""
    trials: int
    failed: int
    """Trials that failed."""


@dataclass(frozen=True)
class RunComparison:
    """Runs with the same objectives; with several, they are compared by the first."""

    entrants: tuple[ComparedRun, ...]
    target: float | None
    """A value of the objective that the runs are timed to; None if no run has a result."""

    @property
    def objective(self) -> Objective:
        return self.entrants[0].results.objectives[0]

    @property
    def unit(self) -> str:
        """The unit of its epochs."""
        units = {entrant.told.unit for entrant in self.entrants}
        return "epochs" if len(units) > 1 else "reports" if units == {REPORTS} else units.pop()

    def rows(self) -> list[Row]:
        """In the order in which the runs were given."""
        return [self._row(entrant) for entrant in self.entrants]

    def _row(self, entrant: ComparedRun) -> Row:
        results, told, sign = entrant.results, entrant.told, self.objective.sign
        last = told.incumbents[-1] if told.incumbents else None
        there = entrant.reached(sign * self.target) if self.target is not None else None
        return Row(
            results.name,
            sign * last.point[0] if last else None,
            last.seconds if last and told.is_whole else None,
            there.seconds if there and told.is_whole else None,
            there.epochs if there and told.is_whole else None,
            told.elapsed if told.is_whole else None,
            told.epochs if told.is_whole else None,
            len(results.trials),
            results.count("failed"),
        )


def race(runs: Sequence[ResultSet], target: float | None = None) -> RunComparison:
    """``target``: the value that the runs are timed to; by default the worst of their best, which all reach.

    Raises InputError if the runs do not have the same objectives and outcome constraints.
    """
    written = {
        results.folder.location: " subject to ".join(
            [objectives_line(results), *filter(None, [" and ".join(map(str, results.outcome_constraints))])]
        )
        for results in runs
    }
    if len(set(written.values())) > 1:
        told = "; ".join(f"{run} has {objectives}" for run, objectives in written.items())
        raise InputError(f"runs with different objectives cannot be compared: {told}")
    entrants = tuple(ComparedRun(results, chronicle(results)) for results in runs)
    sign = runs[0].objectives[0].sign
    bests = [entrant.told.incumbents[-1].point[0] for entrant in entrants if entrant.told.incumbents]
    return RunComparison(entrants, target if target is not None else sign * min(bests) if bests else None)


def columns(found: RunComparison) -> list[dict[str, Any]]:
    """The table: a row a run."""
    metric, unit = found.objective.metric, found.unit
    to = f"to {found.target:.4g}" if found.target is not None else "to target"
    return [
        {
            "run": row.run,
            f"best {metric}": row.best,
            "s to best": _shown(row.seconds_to_best),
            f"s {to}": _shown(row.seconds_to_target),
            f"{unit} {to}": _shown(row.epochs_to_target),
            "seconds": _shown(row.seconds),
            unit: _shown(row.epochs),
            "trials": row.trials,
            "failed": row.failed,
        }
        for row in found.rows()
    ]


def _shown(value: float | None) -> float | str:
    """Tenths of what is small, whole numbers else; a dash for what is not known."""
    if value is None:
        return "-"
    return round(value, 1) if value < 1000 and value % 1 else round(value)


def footnotes(found: RunComparison) -> list[str]:
    """How to read the table."""
    lines = [f"s: seconds of search, without those between an interruption and resume; {found.unit}: over all trials"]
    if len({entrant.told.unit for entrant in found.entrants}) > 1:
        counted = ", ".join(f"{entrant.results.name} counts {entrant.told.unit}" for entrant in found.entrants)
        lines.append(f"epochs: {counted}")
    if found.target is not None:
        lines.append(f"target: {found.objective.metric} {found.target:.6g}; - where it was not reached")
    if len(found.entrants[0].results.objectives) > 1:
        lines.append(f"several objectives: compared by the first, {found.objective}")
    return lines


def _figures(found: RunComparison) -> list[go.Figure]:
    """The incumbents over the seconds of search, and over the epochs spent."""
    factor, unit_name = time_axis(max(entrant.told.elapsed for entrant in found.entrants))
    every = [found.objective.sign * m.point[0] for entrant in found.entrants for m in entrant.told.incumbents]
    extent, _ = view(every, found.objective)
    y = {"title": {"text": f"best so far: {objective_label(found.objective)}"}, "range": extent}
    times = [[moment.seconds / factor for moment in entrant.told.incumbents] for entrant in found.entrants]
    spent = [[moment.epochs for moment in entrant.told.incumbents] for entrant in found.entrants]
    by_seconds = [_line(found, i, times[i], e.told.elapsed / factor) for i, e in enumerate(found.entrants)]
    by_epochs = [_line(found, i, spent[i], e.told.epochs) for i, e in enumerate(found.entrants)]
    titles = f"time of the search ({unit_name})", f"{label(found.unit)} spent over all trials"
    return [
        figure(lines, {"title": {"text": title}, "rangemode": "tozero"}, y, height=440)
        for lines, title in zip((by_seconds, by_epochs), titles, strict=True)
    ]


def _line(found: RunComparison, number: int, x: list[float], end: float) -> Any:
    import plotly.graph_objects as go

    entrant = found.entrants[number]
    y = [found.objective.sign * moment.point[0] for moment in entrant.told.incumbents]
    x, y = (x, y) if entrant.told.is_whole else ([], [])
    name = label(entrant.results.name)
    return go.Scatter(
        x=[*x, end] if x else [],
        y=[*y, y[-1]] if y else [],
        mode="lines",
        name=name,
        line={
            "color": PALETTE[number % (len(PALETTE) - 1)],  # black is not seen on a dark page
            "dash": _DASHES[number // (len(PALETTE) - 1) % len(_DASHES)],
            "width": 2.2,
            "shape": "hv",
        },
        hovertemplate=f"{name}<br>%{{x:.4g}}: %{{y:.6g}}<extra></extra>",
    )


def page(found: RunComparison) -> str:
    """The comparison as one HTML page."""
    rows = columns(found)
    made = table([list(rows[0]), *(list(row.values()) for row in rows)])
    told = [text for e in found.entrants for text in (*e.results.notices, *e.results.unreadable)]
    title = " · ".join(entrant.results.name for entrant in found.entrants)
    sections = [
        Section("table", "What each came to", ". ".join(footnotes(found)) + ".", html=made),
        Section(
            "incumbents", "Best value so far", "Over the time of the search, and over what it spent.", _figures(found)
        ),
    ]
    return document(title, f"<h1>{escape(title)}</h1>{notices(dict.fromkeys(told))}", sections)
