"""The limits of a search: when it ends, and when no new trial starts because the running ones will use up a limit."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ray.tune import Stopper

from tuner.experiment.spec import Budget
from tuner.runs.results import ResultSet
from tuner.schedulers.base import SchedulerSpec
from tuner.search.control import SearchControl
from tuner.search.usage import UsageTracker
from tuner.spec.quantities import format_duration


class BudgetStopper(Stopper):  # type: ignore[misc]
    """Ends the whole search as soon as a limit of the budget is reached, and says which.

    Besides, no new trial starts while what is left of a limit is spoken for, see `is_committed`.
    """

    def __init__(
        self,
        budget: Budget,
        scheduler: SchedulerSpec,
        gpus_per_trial: float,
        results: ResultSet,
        usage: UsageTracker,
        control: SearchControl,
    ) -> None:
        self._budget = budget
        self._scheduler = scheduler
        self._rungs = scheduler.rungs()
        self._gpus = gpus_per_trial
        self._results = results
        self._usage = usage
        self._control = control
        self._told = ""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def renew(self, budget: Budget) -> None:
        """The limits are others from now on."""
        self._budget, self._told = budget, ""

    def stop_all(self) -> bool:
        if not self._control.stop_reason:
            self._end(self._reached())
        return bool(self._control.stop_reason)

    def is_committed(self, running: Collection[str]) -> bool:
        """Whether no new trial may start beside the ``running`` ones.

        None may start while the running trials will use up the rest of ``epochs``, ``gpu_hours`` or ``cost``. Each is
        expected to reach its next rung (without rungs, ``max_t``; else the mean length of a completed trial).
        An epoch is expected to take the mean seconds of an epoch so far. Time passes for all trials at once: at that
        pace, ``wall_clock`` must leave a new trial the time to its first rung (without rungs, the time of one epoch).
        If it does not, and no trial runs, the search ends.
        """
        limit = self._spoken_for(sum(self._to_go(self._usage.epoch(trial)) for trial in running))
        if limit and limit != self._told:
            self._told = limit
            self._control.say(f"NOTICE: {limit}: the running trials will use up the rest: no other starts meanwhile")
        if limit:
            return True
        wall_clock = self._budget.wall_clock
        first = (self._rungs[0] if self._rungs else 1) * self._usage.seconds_per_epoch
        if wall_clock is None or self._control.elapsed + first < wall_clock:
            return False
        if not running:
            self._end(f"budget.wall_clock {format_duration(wall_clock)}: too little is left for another trial")
        return True

    def _end(self, reason: str) -> None:
        if reason:
            self._control.stop_reason = reason
            self._control.say(f"the search ends: {reason}")

    def _to_go(self, epoch: float) -> float:
        """Epochs that a trial at ``epoch`` is expected to continue for."""
        if self._rungs:
            return next((rung - epoch for rung in self._rungs if rung > epoch), 0.0)
        length = self._scheduler.fidelity[1] if self._scheduler.fidelity else self._usage.mean_completed_epochs
        return max(0.0, length - epoch)

    def _spoken_for(self, epochs: float) -> str:
        """The limit that ``epochs`` more will use up; empty if there is none."""
        budget, hours = self._budget, self._gpu_hours(epochs * self._usage.seconds_per_epoch)
        if budget.epochs is not None and self._usage.epochs + epochs >= budget.epochs:
            return f"budget.epochs {budget.epochs}"
        if budget.gpu_hours is not None and hours >= budget.gpu_hours:
            return f"budget.gpu_hours {budget.gpu_hours:g}"
        if budget.cost is not None and hours * budget.cost.per_gpu_hour >= budget.cost.max:
            return f"budget.cost.max {budget.cost.max:g}"
        return ""

    def _gpu_hours(self, more_seconds: float = 0.0) -> float:
        """Held so far, and by trials that run ``more_seconds``."""
        return self._gpus * (self._usage.held + more_seconds) / 3600

    def _reached(self) -> str:
        budget = self._budget
        if limit := self._spoken_for(0.0):
            price = f" ({self._gpu_hours():.3g} GPU hours)" if limit.startswith("budget.cost") else ""
            return f"{limit} is used up{price}"
        if budget.wall_clock is not None and self._control.elapsed >= budget.wall_clock:
            return f"budget.wall_clock {format_duration(budget.wall_clock)} is used up"
        if budget.target is not None and self._usage.has_reached(budget.target):
            best = self._results.best  # it may lack the checkpoint of that report
            if best is not None and best.best is not None:
                value = self._results.value(best.best)
                if not self._results.better(budget.target, value):
                    return f"budget.target {budget.target:g} is reached"
        if budget.patience is not None and self._usage.trials_since_improvement >= budget.patience:
            return f"budget.patience {budget.patience}: as many trials in a row ended without a new best"
        return ""
