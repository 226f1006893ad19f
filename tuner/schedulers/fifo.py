"""First in, first out: no trial is stopped early."""

from __future__ import annotations

from typing import Literal

from tuner.schedulers.base import Decision, Scheduler, SchedulerSpec
from tuner.spec.problem import SearchProblem


class Fifo(SchedulerSpec):
    """Every trial runs until its function returns.

    Example:
        >>> import tuner
        >>> tuner.schedulers.Fifo().rungs()
        ()
    """

    kind: Literal["fifo"] = "fifo"
    """The name of this scheduler."""

    @property
    def compares_ranks(self) -> bool:
        return True

    def build(self, task: SearchProblem) -> Scheduler:
        return FifoScheduler()


class FifoScheduler(Scheduler):
    """Lets every trial continue."""

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        return Decision.CONTINUE
