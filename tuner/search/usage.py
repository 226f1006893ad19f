"""Time, cost and progress of a search so far, counted event by event: the same while it runs and from its journal."""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_left
from typing import Any

from tuner.runs.events import Event
from tuner.runs.history import reopened_by
from tuner.runs.results import ResultSet
from tuner.spec.objective import Objective
from tuner.spec.outcome_constraints import OutcomeConstraint, metrics_read, ranked_point

REPORTS = "training_iteration"


class _Steps:
    """A trial's reports: the number of each, and the epoch and the seconds of the trial then. 24 bytes a report."""

    __slots__ = ("epochs", "seconds", "steps")

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.epochs, self.seconds = array("d"), array("d")

    def get(self, step: int) -> tuple[float, float] | None:
        """Epoch and seconds at a report; None if there is none."""
        i = bisect_left(self.steps, step)
        return (self.epochs[i], self.seconds[i]) if i < len(self.steps) and self.steps[i] == step else None

    def put(self, step: int, epoch: float, seconds: float) -> None:
        """A report, in the place of one of the same number."""
        i = bisect_left(self.steps, step) if self.steps and step <= self.steps[-1] else len(self.steps)
        if i < len(self.steps) and self.steps[i] == step:
            self.epochs[i], self.seconds[i] = epoch, seconds
        else:
            self.steps.insert(i, step)
            self.epochs.insert(i, epoch)
            self.seconds.insert(i, seconds)


def unit_of(results: ResultSet) -> str:
    """What the scheduler of a run counts a trial's progress in."""
    return str(results.section("scheduler").get("time_attr", REPORTS))


def usage_of(results: ResultSet) -> UsageTracker:
    """An empty one for the run of ``results``."""
    return UsageTracker(results.objectives, unit_of(results), results.outcome_constraints)


class UsageTracker:
    """Adds up over all trials, those of the time before a search was resumed included."""

    def __init__(
        self,
        objectives: tuple[Objective, ...],
        unit: str = REPORTS,
        constraints: tuple[OutcomeConstraint, ...] = (),
    ) -> None:
        self._objectives = objectives
        self._constraints = constraints
        self._name = unit
        self.epochs = 0.0
        """Of the scheduler's ``time_attr``, or reports; what a trial repeats after a restart counts once."""
        self.seconds = 0.0
        """That trials ran up to their reports; what a trial repeats counts again. They tell the pace."""
        self.held = 0.0
        """Seconds for which processes held the resources of a trial, from their start to their end: idle ones, attempts
        that failed and what came after the last report included. At least `seconds`, which is all that journals of
        older versions tell."""
        self.trials_since_improvement = 0
        """Trials in a row that ended without having made a new best, since the latest new best."""
        self._front: list[tuple[float, ...]] = []
        self._improved: set[str] = set()
        """Trials that made a new best."""
        self._at: dict[str, _Steps] = {}
        """By trial."""
        self._base: dict[str, float] = {}
        """Of each trial that continues from another one's checkpoint and has not reported since: the epoch of that."""
        self._completed, self._completed_epochs = 0, 0.0
        self._ends: dict[str, str] = {}
        """Of each trial that has ended: its status."""
        self.failed = 0
        """Trials that have failed."""

    def apply(self, event: Event) -> None:
        """Takes account of an event of the journal."""
        self.held = event.get("held", self.held)
        match event["what"]:
            case "suggested" if event.get("origin"):
                self._base[event["trial"]] = float(event["origin"]["begins_at"])
            case "reported":
                self._reported(event["trial"], event["step"], event["seconds"], event["metrics"], event.get("segment"))
            case "ended":
                if event["trial"] not in self._improved:
                    self.trials_since_improvement += 1
                self._ends[event["trial"]] = event["status"]
                self.failed += event["status"] == "failed"
                if event["status"] == "completed":
                    self._completed += 1
                    self._completed_epochs += self.epoch(event["trial"])
        for trial_id in reopened_by(event):
            self.failed -= self._ends.pop(trial_id, "") == "failed"

    @property
    def ended(self) -> int:
        """Trials that have ended."""
        return len(self._ends)

    def hold(self, seconds: float) -> None:
        """Processes have held the resources of a trial for ``seconds`` more, added over them."""
        self.held += seconds

    def epoch(self, trial_id: str) -> float:
        """How far the trial has come."""
        at = self._at.get(trial_id)
        return self._base.get(trial_id, at.epochs[-1] if at else 0.0)

    @property
    def seconds_per_epoch(self) -> float:
        """Mean over all trials; 0 before the first report."""
        return self.seconds / self.epochs if self.epochs else 0.0

    @property
    def mean_completed_epochs(self) -> float:
        """Mean epochs of the completed trials; 0 while there are none."""
        return self._completed_epochs / self._completed if self._completed else 0.0

    def has_reached(self, value: float) -> bool:
        """Whether a report was at least as good in the first objective."""
        return any(point[0] >= self._objectives[0].sign * value for point in self._front)

    def _reported(
        self, trial_id: str, step: int, seconds: float, metrics: dict[str, Any], segment: dict[str, Any] | None
    ) -> None:
        at = self._at.setdefault(trial_id, _Steps())
        epoch = float(step if self._name == REPORTS else metrics.get(self._name, step))
        epoch_before, seconds_before = at.get(step - 1) or (0.0, 0.0)
        if at.get(step) is None:
            self.epochs += max(0.0, epoch - self._base.pop(trial_id, epoch_before))
        self.seconds += max(0.0, seconds - seconds_before)
        self.held = max(self.held, self.seconds)
        at.put(step, epoch, seconds)
        if segment is not None and segment["donor"] is not None and self._name != REPORTS:
            taken = self._taken(segment["donor"], segment["donor_step"])
            if taken is not None:
                self._base[trial_id] = taken
        self._compare(trial_id, metrics)

    def _taken(self, donor: str, step: int) -> float | None:
        """The epoch of the donor's checkpoint of report ``step``, also if the donor took that checkpoint over.

        None if a damaged journal has lost that report.
        """
        at = self._at.get(donor)
        found = at.get(step) if at else None
        if at is None or found is None:
            return None
        return self.epoch(donor) if step == at.steps[-1] else found[0]

    def _compare(self, trial_id: str, metrics: dict[str, Any]) -> None:
        """Whether the trial made a new best: a value, or with several objectives a point, that no other reaches."""
        read = [float(metrics[name]) for name in metrics_read(self._objectives, self._constraints)]
        point = ranked_point(self._objectives, self._constraints, read)
        for other in self._front:
            if all(map(operator.ge, other, point)):
                return
        self._front = [other for other in self._front if any(map(operator.gt, other, point))] + [point]
        self._improved.add(trial_id)
        self.trials_since_improvement = 0
