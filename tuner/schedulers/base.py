"""What every scheduler is: a specification that a user writes, and the Ray Tune scheduler that it builds."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal

from tuner.spec.model import Model

if TYPE_CHECKING:
    from ray.tune.schedulers import TrialScheduler

Mode = Literal["min", "max"]


class SchedulerSpec(Model):
    """The common part of every ``scheduler:`` block."""

    @abstractmethod
    def build(self, metric: str, mode: Mode) -> TrialScheduler:
        """Ray Tune's scheduler with every option passed explicitly."""

    @property
    def fidelity(self) -> tuple[str, int] | None:
        """(name of the reported number that counts a trial's progress, its value at which a trial is complete)."""
        return None

    def rungs(self) -> tuple[int, ...]:
        """Fidelities at which trials are compared, ascending; the last is where a trial is complete."""
        return ()

    def expected_at_rungs(self, trials: int) -> tuple[float, ...]:
        """How many of ``trials`` are expected to reach each rung when the order of trials says nothing."""
        return ()
