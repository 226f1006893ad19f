"""First in, first out: no trial is stopped early."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tuner.schedulers.base import Mode, SchedulerSpec

if TYPE_CHECKING:
    from ray.tune.schedulers import TrialScheduler


class Fifo(SchedulerSpec):
    """Every trial runs until its function returns. Ray's ``FIFOScheduler`` does the job."""

    kind: Literal["fifo"] = "fifo"

    def build(self, metric: str, mode: Mode) -> TrialScheduler:
        from ray.tune.schedulers import FIFOScheduler

        return FIFOScheduler()
