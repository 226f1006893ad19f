"""Between ``ray.tune.report`` and Ray Tune, in a trial's process: which checkpoints are written, with their manifests.

A manifest lists the contents of the folder that the trainable reported. It is added to the copy that Ray makes of that
folder on the storage, after the copy is complete. The copy is synced to the disk while the trial continues. The driver
gets a checkpoint after the previous one is on the disk (`tuner.search.checkpoint_retention` keeps both). A checkpoint
at which the trial may halt must be on the disk itself. So a power cut loses no checkpoint in whose favour another was
deleted.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from numbers import Real
from typing import Any

from ray.train._internal.session import _TrainSession
from ray.tune import Checkpoint
from ray.tune.result import TIME_THIS_ITER_S, TRAINING_ITERATION

from tuner.execution.metrics import flat_metrics
from tuner.schedulers.base import SchedulerSpec
from tuner.storage.folder import RunFolder
from tuner.storage.manifest import contents, make_durable, seal

GOES_ON_FROM = "tuner/goes_on_from"
"""Key in the metrics of a checkpoint that came from another trial: the fidelity at which it was made."""


_COUNTED = (TRAINING_ITERATION, TIME_THIS_ITER_S)
"""Ray prefers what a trainable reports under these names to its own count."""


class ReportInterceptor:
    """Takes the place of the session's ``report``."""

    def __init__(self, session: _TrainSession, every: int, scheduler: SchedulerSpec) -> None:
        self._session = session
        self._every = every
        self._scheduler = scheduler
        self._name = scheduler.fidelity[0] if scheduler.fidelity else TRAINING_ITERATION
        self._pass_on = session.report
        session.report = self.report
        self._original_report = session._report_training_result
        session._report_training_result = self._on_handed_over
        self._syncer = ThreadPoolExecutor(1, "ray_syncer")  # threads of that name may stay when a trial ends
        self.at = 0.0
        """When the trial came to its latest report, on the monotonic clock."""
        self.begin({})

    def begin(self, metrics: dict[str, Any]) -> None:
        """Another trial starts, or continues from the checkpoint that came with ``metrics``."""
        self.number = int(metrics.get(TRAINING_ITERATION, 0))
        """Of the report that came last, counted over restarts."""
        self._step = float(metrics.get(GOES_ON_FROM, self._read(metrics, 0.0)))
        self._skipped = 0
        self._begun = self._writing = 0.0
        self._may_halt = False
        """Whether the trial may be paused or ended at the report that came last."""
        self._syncing: Future[None] | None = None
        self._files: dict[str, Any] = {}
        """What was in the folder of the checkpoint that was reported last."""
        self.decides = True
        """Whether something is decided at the report that came last: the scheduler may stop or change the trial."""

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None = None) -> None:
        """As ``ray.tune.report``; neither what we count nor a checkpoint that is not to be written reaches Ray."""
        metrics = {name: value for name, value in metrics.items() if name not in _COUNTED}
        self.number += 1
        before = self._step
        self._step = self._read(metrics, before)
        self.decides = self._scheduler.decides_at(before, self._step)
        self._may_halt = self._scheduler.needs_checkpoint_at(before, self._step)
        if checkpoint is not None and not self._is_due():
            checkpoint = None
        if checkpoint is not None:
            self._files = contents(_folder(checkpoint))
        self._begun = time.monotonic()
        self._pass_on(metrics, checkpoint=checkpoint)

    def will_decide(self, metrics: dict[str, Any]) -> bool:
        """Whether something is decided at the next report, if it has these metrics; `tuner.training.reporting` asks."""
        counted = self._name == TRAINING_ITERATION
        step = self.number + 1.0 if counted else self._read(metrics, self._step)
        return self._scheduler.decides_at(self._step, step)

    def seconds_of_checkpoints(self) -> float:
        """For how long the trial wrote checkpoints since the last call; its waits for the driver do not count."""
        spent, self._writing = self._writing, 0.0
        return spent

    def _on_handed_over(self, result: Any) -> None:
        if result.checkpoint is not None:
            self.settle()
            folder = _folder(result.checkpoint)
            self._session.storage.insist(lambda: seal(folder, self._files))
            self._syncing = self._syncer.submit(make_durable, folder)
            if self._may_halt:
                self.settle()
        self.at = time.monotonic()
        if result.checkpoint is not None:
            self._writing += self.at - self._begun
        self._original_report(result)

    def settle(self) -> None:
        """Returns when the checkpoint that was written last is on the disk. Raises OSError if it cannot be."""
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            syncing.result()

    def _read(self, metrics: dict[str, Any], default: float) -> float:
        named = flat_metrics(metrics)
        return _number(self.number if self._name == TRAINING_ITERATION else named.get(self._name), default)

    def _is_due(self) -> bool:
        """Counts from the last one that was written, as a trial that is restarted continues from there."""
        self._skipped += 1
        if self._skipped < self._every and not self._may_halt:
            return False
        self._skipped = 0
        return True


def _folder(checkpoint: Checkpoint) -> RunFolder:
    return RunFolder(checkpoint.filesystem, checkpoint.path, checkpoint.path)


def _number(value: Any, default: float) -> float:
    """``value``, if it is a number: whether it may be reported is checked elsewhere."""
    return float(value) if isinstance(value, Real) else default
