"""A scheduler of ours as Ray Tune's ``TrialScheduler``."""

from __future__ import annotations

import copy
import posixpath
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ray.train._internal.session import _TrainingResult
from ray.tune import Checkpoint
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial as RayTrial
from ray.tune.result import TIME_TOTAL_S, TRAINING_ITERATION
from ray.tune.schedulers import TrialScheduler

from tuner.errors import InputError, TunerError
from tuner.execution.metrics import flat_metrics
from tuner.execution.recorder import Recorder
from tuner.execution.report_interceptor import GOES_ON_FROM
from tuner.execution.retry_policy import with_micro_batch
from tuner.runs.results import RAY
from tuner.schedulers.base import Decision, Exploit, Resume
from tuner.search.state import SearchState

CHECKPOINT_DIR_NAME = "checkpoint_dir_name"
"""Ray's key in a report for the name of the checkpoint that came with it."""

_RAYS = {
    Decision.CONTINUE: TrialScheduler.CONTINUE,
    Decision.PAUSE: TrialScheduler.PAUSE,
    Decision.STOP: TrialScheduler.STOP,
}


class SchedulerAdapter(TrialScheduler):  # type: ignore[misc]
    """Passes Ray's news on to our scheduler, and carries out what it decides.

    `tuner.execution.controller.Controller` gives it the state and asks it, through `fill`, whom a free slot belongs
    to.
    """

    state: SearchState
    recorder: Recorder
    controller: TuneController
    give_up: Callable[[TunerError], None]
    """Ends the search with an error that every trial would meet."""

    def on_trial_add(self, tune_controller: Any, trial: RayTrial) -> None: ...

    def on_trial_error(self, tune_controller: Any, trial: RayTrial) -> None: ...

    def on_trial_complete(self, tune_controller: Any, trial: RayTrial, result: dict[str, Any]) -> None: ...

    def on_trial_remove(self, tune_controller: Any, trial: RayTrial) -> None: ...

    def on_trial_result(self, tune_controller: Any, trial: RayTrial, result: dict[str, Any]) -> str:
        number, seconds = result[TRAINING_ITERATION], result[TIME_TOTAL_S]
        decision = self.state.report(trial.trial_id, number, result, seconds)
        self.recorder.set_decision(trial.trial_id, decision)
        if isinstance(decision, Exploit):
            return self._exploit(trial, decision, result)
        if decision is Decision.PAUSE and not (result.get(CHECKPOINT_DIR_NAME) or trial.has_checkpoint()):
            return self._no_checkpoint(f"pauses trials, and {trial.trial_id} has come to its rung")
        return str(_RAYS[decision])

    def fill(self, more: bool) -> bool:
        """Gives one free slot to a paused trial, or ends a paused trial; False if no paused trial may continue."""
        could_come = self.state.more
        action = self.state.next_action(more)
        if action is not None or more != could_come:
            self.recorder.slot_requested(more)
        if action is None:
            return False
        trial = self.controller.get_trial(action.trial_id)
        if trial is None:  # a damaged journal told the scheduler that it waits, and not that it has ended
            self.state.end(action.trial_id, failed=False)
        elif isinstance(action, Resume) and trial.status == RayTrial.RUNNING:  # its checkpoint is still being saved
            self.controller._cached_trial_decisions[trial.trial_id] = TrialScheduler.CONTINUE
        elif isinstance(action, Resume):
            self.controller._set_trial_status(trial, RayTrial.PENDING)
        else:
            self.controller.stop_trial(trial)
        return True

    def _exploit(self, trial: RayTrial, exploit: Exploit, result: dict[str, Any]) -> str:
        """Ends the trial's segment, and lets it continue from a copy of the donor's checkpoint.

        A copy, because the donor's own may be deleted at its next report, before this trial has read it. The trial
        continues to count its own reports and seconds, so that no two of its reports have the same number. If the
        donor's checkpoint is lost, the trial takes over the configuration alone, and continues from its own checkpoint.
        """
        donor = self.controller.get_trial(exploit.donor)
        source = reported_checkpoint(donor, donor.last_result) if donor and donor.is_saving else None
        source = source or (donor.latest_checkpoint_result if donor else None)
        if source and self._is_gone(source, exploit.donor):
            source = None
        if own := reported_checkpoint(trial, result):  # Ray takes note of it only where the trial continues
            trial.on_checkpoint(own)
        if source is None and own is not None:
            source, exploit = own, replace(exploit, donor=trial.trial_id)
        if source is None:
            return self._no_checkpoint(f"lets {trial.trial_id} continue from {exploit.donor}")
        after, taken = result[TRAINING_ITERATION], source.metrics[TRAINING_ITERATION]
        copied = self.recorder.exploited(trial.trial_id, exploit, after, source.checkpoint.path, taken)
        self.controller.pause_trial(trial, should_checkpoint=False)
        reduced = self.recorder.results.trial(trial.trial_id).micro_batch
        trial.set_config(with_micro_batch(copy.deepcopy(exploit.configuration), reduced))
        trial.run_metadata.checkpoint_manager._latest_checkpoint_result = _TrainingResult(
            Checkpoint(copied, source.checkpoint.filesystem),
            {**result, GOES_ON_FROM: self.state.fidelity(after, flat_metrics(source.metrics))},
        )
        self.controller._set_trial_status(trial, RayTrial.PENDING)
        return str(TrialScheduler.NOOP)

    def _is_gone(self, source: _TrainingResult, donor: str) -> bool:
        """Whether the donor's checkpoint was deleted from outside; then a notice says so."""
        recorder, path = self.recorder, source.checkpoint.path
        if recorder.storing.has(replace(recorder.results.folder, path=path)):
            return False
        name = f"{RAY}/{donor}/{posixpath.basename(path)}"
        instead = "the trial that was to take it over takes over the configuration alone"
        recorder.lost(recorder.results.trial(donor), name, "it is gone", instead)
        return True

    def _no_checkpoint(self, why: str) -> str:
        kind = self.recorder.scheduler.kind
        message = (
            f"scheduler.kind: {kind} {why}, but the trainable has reported no checkpoint: "
            f"call ray.tune.report(metrics, checkpoint=...) at each report, or choose asha (variant stopping) or fifo"
        )
        self.give_up(InputError(message))
        return str(TrialScheduler.STOP)

    def choose_trial_to_run(self, tune_controller: Any, allow_recurse: bool = True) -> None:
        """Nothing: the controller queues trials in the order in which they are to start."""

    def debug_string(self) -> str:
        return type(self).__name__


def reported_checkpoint(trial: RayTrial, result: dict[str, Any]) -> _TrainingResult | None:
    """The checkpoint that came with a report: it is on the storage before Ray has taken note of it."""
    name, storage = result.get(CHECKPOINT_DIR_NAME), trial.storage
    if not name:
        return None
    return _TrainingResult(Checkpoint(f"{storage.trial_fs_path}/{name}", storage.storage_filesystem), result)
