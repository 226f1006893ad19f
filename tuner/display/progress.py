"""What every view of a running search has in common."""

from __future__ import annotations

import time

from tuner.display.terminal import TerminalCapture
from tuner.runs.failure import Failure
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.spec.objective import dominates
from tuner.spec.quantities import format_duration
from tuner.visualization.text_tables import best_command, headline, learned_lines


class Progress:
    """What both views share: the clock, the incumbent, and the last words."""

    def __init__(self, screen: TerminalCapture) -> None:
        self._screen = screen
        self._begun = time.monotonic()
        self._results: ResultSet | None = None
        self._front: dict[str, tuple[float, ...]] = {}
        """The points of the trials that lead: of one with one objective, of the front with several."""

    def started(self, results: ResultSet) -> None:
        self._results = results
        self._front = {trial.id: results.point(trial.best) for trial in results.front if trial.best}
        self._screen.take(results)

    def reported(self, trial: Trial, report: Report) -> None:
        results = self._results
        if results is None or trial.best is not report or not results.is_feasible(report):
            return
        led, point = trial.id in self._front, results.point(report)
        others = {name: other for name, other in self._front.items() if name != trial.id}
        if any(other == point or dominates(other, point) for other in others.values()):
            self._front = others
            return
        self._front = {name: other for name, other in others.items() if not dominates(point, other)} | {trial.id: point}
        if not led:
            self.took_the_lead(trial, report)

    def took_the_lead(self, trial: Trial, report: Report) -> None: ...
    def retried(self, trial: Trial, failure: Failure) -> None: ...
    def ended(self, trial: Trial) -> None: ...
    def tick(self) -> None: ...

    def finished(self, results: ResultSet) -> None:
        self._screen.release()
        lines = [*headline(results), *learned_lines(results)]
        for line in [*lines, f"run: {results.folder.location} ({format_duration(time.monotonic() - self._begun)})"]:
            self._screen.say(line)
        kept = [trial for trial in results.front if trial.best and trial.best.checkpoint]
        if kept:
            which = "a" if results.has_front else "the best"
            self._screen.say(f"restore {which} model: {best_command(results, kept[0])}")
