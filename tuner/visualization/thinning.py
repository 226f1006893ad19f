"""Selects the trials of a large run to draw: a page of 10^5 trials is as large, and opens as fast, as one of 10^3."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from tuner.runs.results import FAILURES, REPORTS, TRIALS, ResultSet
from tuner.runs.trial import Report, Trial

MOST_TRIALS = 1000
"""Trials that have a row, or a line in a figure, at most."""

MOST_POINTS = 50_000
"""Reports in the figure of the learning curves at most."""

MOST_CELLS = 30_000
"""Cells of a table at most, and so its rows, where there are many parameters."""

MOST_AXES = 24
"""Parameters in the parallel coordinates at most."""

Item = TypeVar("Item")


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """An even choice of at most ``most``, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    every = math.ceil((len(items) - 1) / (most - 1))
    return [*items[: len(items) - 1 : every], items[-1]]


def shown(results: ResultSet, most: int = MOST_TRIALS) -> list[Trial]:
    """The trials that are shown, best first: half of them the best, a quarter failed lately, the rest the latest."""
    every = [*results.rank(results.trials), *(trial for trial in results.trials if trial.best is None)]
    if len(every) <= most:
        return every
    failed = [trial for trial in results.trials if trial.status == "failed"]
    chosen = {trial.id for trial in (*every[: most // 2], *failed[-(most // 4) :])}
    for trial in reversed(results.trials):
        if len(chosen) == most:
            break
        chosen.add(trial.id)
    return [trial for trial in every if trial.id in chosen]


def curve_points(reports: Sequence[Report], trials: int) -> list[Report]:
    """The points of a curve that are drawn, if ``trials`` curves are."""
    return spread(reports, max(2, MOST_POINTS // max(trials, 1)))


def left_out(results: ResultSet, count: int) -> str:
    """A caption's words for `shown`; empty if all trials are."""
    if count >= len(results.trials):
        return ""
    whose = f"{count} of the {len(results.trials)} trials: the best, the latest, and the latest that failed"
    return f" Shown are {whose}; {TRIALS} has all of them."


def thinned(results: ResultSet, count: int) -> str:
    """A caption's words for `curve_points`; empty if every report is drawn."""
    longest = max((len(trial.reports) for trial in results.trials), default=0)
    most = max(2, MOST_POINTS // max(count, 1))
    return f" Of each curve at most {most} reports are drawn; {REPORTS} has all of them." if longest > most else ""


def cut(count: int, most: int, where: str = FAILURES) -> str:
    """A caption's words for a list of which the latest ``most`` are shown; empty if all are."""
    return f"Shown are the latest {most} of {count}; {where} has all of them." if count > most else ""
