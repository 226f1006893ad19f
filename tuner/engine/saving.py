"""Between ``ray.tune.report`` and Ray Tune, in a trial's process: which checkpoints are written, with their manifests.

The manifest is put into the folder that the trainable reported, before Ray copies that folder to the storage. A folder
that the trainable keeps for itself therefore gets this one file; where it cannot be written, the checkpoint has none.
"""

from __future__ import annotations

import contextlib
import time
from numbers import Real
from typing import Any

from ray.train._internal.session import _TrainSession
from ray.tune import Checkpoint
from ray.tune.result import TRAINING_ITERATION

from tuner.engine.metrics import flat_metrics
from tuner.manifest import write_manifest
from tuner.schedulers.base import SchedulerSpec
from tuner.storage import RunFolder

GOES_ON_FROM = "tuner/goes_on_from"
"""What stands in the metrics of a checkpoint that is another trial's: the fidelity at which it was made."""


class Saving:
    """Takes the place of the session's ``report``."""

    def __init__(self, session: _TrainSession, every: int, scheduler: SchedulerSpec) -> None:
        self._every = every
        self._scheduler = scheduler
        self._name = scheduler.fidelity[0] if scheduler.fidelity else TRAINING_ITERATION
        self._pass_on = session.report
        session.report = self.report
        self._hand_over = session._report_training_result
        session._report_training_result = self._stands
        self.at = 0.0
        """When the trial came to its latest report, on the monotonic clock."""
        self.begin({})

    def begin(self, metrics: dict[str, Any]) -> None:
        """Another trial starts, or goes on from the checkpoint that came with ``metrics``."""
        self._number = int(metrics.get(TRAINING_ITERATION, 0))
        self._step = float(metrics.get(GOES_ON_FROM, self._read(metrics, 0.0)))
        self._skipped = 0
        self.decides = True
        """Whether something is decided at the report that came last: the scheduler may stop or change the trial."""

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None = None) -> None:
        """As ``ray.tune.report``; a checkpoint that is not to be written does not reach Ray."""
        self._number += 1
        before = self._step
        self._step = self._read(metrics, before)
        self.decides = self._scheduler.may_decide(before, self._step)
        if checkpoint is not None and not self._is_due(before):
            checkpoint = None
        if checkpoint is not None:
            with contextlib.suppress(OSError):  # a folder that the trainable may only read
                write_manifest(RunFolder(checkpoint.filesystem, checkpoint.path, checkpoint.path))
        self._pass_on(metrics, checkpoint=checkpoint)

    def _stands(self, result: Any) -> None:
        self.at = time.monotonic()
        self._hand_over(result)

    def _read(self, metrics: dict[str, Any], default: float) -> float:
        named = flat_metrics(metrics)
        return _number(self._number if self._name == TRAINING_ITERATION else named.get(self._name), default)

    def _is_due(self, before: float) -> bool:
        """Counts from the last one that was written, as a trial that is restarted goes on from there."""
        self._skipped += 1
        if self._skipped < self._every and not self._scheduler.may_halt(before, self._step):
            return False
        self._skipped = 0
        return True


def _number(value: Any, default: float) -> float:
    """``value``, if it is a number: whether it may be reported is checked elsewhere."""
    return float(value) if isinstance(value, Real) else default
