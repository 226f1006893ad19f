"""Ray Tune's control loop with what it lacks.

Ray 2.60's ``TuneController`` does the job but for four things, each measured or read in its source:

- A process that cannot be reused (its trial's thread still runs, it died while idle, or it grew) takes the next trial
  down with it: the trial is set to ERROR, or stays PENDING for ever. Here the process is replaced and the trial starts.
- Only one idle process is kept when no trial is queued, so two trials that end together cost one process start, seconds
  with torch. Here as many are kept as trials run at once.
- Ctrl-C stops running trials wherever they are. Here they go on to their next checkpoint.
- It tells nobody whether a trial's function returned or was stopped.

``Tuner.fit`` builds its controller from the name in ``ray.tune.tune``; `replaces_rays` puts this one there meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import ray.tune.tune
from ray.exceptions import RayTaskError
from ray.tune import Callback, Stopper
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial as RayTrial
from ray.tune.result import RESULT_DUPLICATE
from ray.tune.schedulers import TrialScheduler

from tuner.engine.control import Control
from tuner.engine.process import MissingMetric
from tuner.engine.recorder import Recorder
from tuner.errors import InputError


@contextlib.contextmanager
def replaces_rays(recorder: Recorder, control: Control, budget: Stopper, slots: int) -> Iterator[None]:
    """Within: ``Tuner.fit`` runs on our controller, which keeps up to ``slots`` idle processes.

    Recorder and budget reach Ray here and not through ``RunConfig``, which Ray pickles with all that it holds.
    """
    members = {"recorder": recorder, "control": control, "budget": budget, "slots": slots}
    with mock.patch.object(ray.tune.tune, "TuneController", type("Controller", (Controller,), members)):
        yield


class Controller(TuneController):  # type: ignore[misc]
    """One search's control loop."""

    recorder: Recorder
    control: Control
    budget: Stopper
    slots: int

    def __init__(self, *, callbacks: list[Callback], stopper: Stopper | None, **options: Any) -> None:
        self._drained: set[RayTrial] = set()
        self._lost_while_idle: set[RayTrial] = set()
        self._cache_sized = False
        super().__init__(callbacks=[*callbacks, self.recorder], stopper=self.budget, **options)
        if self.resumed:
            self._replay()

    def _replay(self) -> None:
        """Shows the scheduler all earlier reports: Ray restores trials and searcher, but forgets the rungs."""
        trials = {trial.trial_id: trial for trial in self._trials}
        for report in self.recorder.history():
            result = {"training_iteration": report.step, **report.metrics}
            self._scheduler_alg.on_trial_result(self._wrapped(), trials[report.trial_id], result)
        for trial in self._trials:
            if trial.is_finished():
                self._scheduler_alg.on_trial_remove(self, trial)

    def __getstate__(self) -> dict[str, Any]:
        """What Ray writes to its experiment state: nothing of ours, which a restored search gets anew."""
        ours = ("_drained", "_lost_while_idle", "_cache_sized", "_stopper")
        return {name: value for name, value in super().__getstate__().items() if name not in ours}

    # --- bookkeeping ---

    def add_trial(self, trial: RayTrial) -> None:
        self.recorder.added(trial)
        super().add_trial(trial)
        if not self._cache_sized:  # only now has the trial its resource request, which is the cache's key
            self._actor_cache.increase_max(trial.placement_group_factory, self.slots)
            self._cache_sized = True

    def _process_trial_result(self, trial: RayTrial, result: dict[str, Any]) -> Any:
        if RESULT_DUPLICATE in result:
            self.recorder.returned(trial.trial_id)
        return super()._process_trial_result(trial, result)

    def _process_trial_failure(self, trial: RayTrial, exception: Any) -> None:
        super()._process_trial_failure(trial, exception)
        if trial.status == RayTrial.ERROR:
            self.recorder.failed(trial.trial_id, exception)
            if isinstance(exception, RayTaskError) and isinstance(exception.cause, MissingMetric):
                self.control.fatal = InputError(str(exception.cause))
                self.request_stop_experiment()

    # --- processes that cannot be reused ---

    def _on_trial_reset(self, trial: RayTrial, success: bool) -> None:
        if success:
            super()._on_trial_reset(trial, success)
        else:
            self._start_elsewhere(trial)

    def _actor_failed(self, tracked_actor: Any, exception: Exception) -> None:
        trial = self._actor_to_trial.get(tracked_actor)
        if trial not in self._resetting_trials:
            super()._actor_failed(tracked_actor, exception)
            return
        self._lost_while_idle.add(trial)
        self._start_elsewhere(trial)

    def _trial_task_failure(self, trial: RayTrial, exception: Exception) -> None:
        if trial in self._lost_while_idle:  # the second news of the same death
            self._lost_while_idle.discard(trial)
            return
        super()._trial_task_failure(trial, exception)

    def _start_elsewhere(self, trial: RayTrial) -> None:
        """Gives ``trial``, which was about to start in a used process, another one."""
        self._resetting_trials.discard(trial)
        used = self._trial_to_actor.pop(trial)
        self._actor_to_trial.pop(used)
        used.set_on_stop(None)
        used.set_on_error(None)
        trial.set_ray_actor(None)
        if self._actor_manager.is_actor_failed(used):
            self._started_actors.discard(used)
        else:
            self._remove_actor(used)
        self._schedule_trial_actor(trial)

    # --- Ctrl-C: running trials go on to their next checkpoint ---

    def _maybe_update_trial_queue(self) -> None:
        if not self.control.interrupted:
            super()._maybe_update_trial_queue()

    def _maybe_add_actors(self) -> None:
        if not self.control.interrupted:
            super()._maybe_add_actors()

    def _execute_action(self, trial: RayTrial, decision: str, after_save: bool = False) -> None:
        if self.control.interrupted and decision == TrialScheduler.CONTINUE and (after_save or not trial.checkpoint):
            self._drained.add(trial)
        else:
            super()._execute_action(trial, decision, after_save)

    def is_finished(self) -> bool:
        if self.control.interrupted and self._running_trials <= self._drained:
            return True
        return bool(super().is_finished())
