"""Ray Tune's control loop with what it lacks.

Ray 2.60's ``TuneController`` does the job, with these exceptions. Each was measured or read in its source.

- A process that cannot be reused (its trial's thread still runs, it died while idle, or it grew) takes the next trial
  down with it. That trial is set to ERROR, or stays PENDING for ever. Here the process is replaced, and the trial
  starts.
- Ray keeps only one idle process if no trial is queued. So two trials that end together cost one process start, which
  takes seconds with torch. Here as many are kept as trials run at once. With an autoscaler they are kept for a short
  time only, because they keep its nodes up.
- Ctrl-C stops running trials at any point. Here they continue to their next checkpoint.
- Ray asks for a new trial before it asks whether a paused one should continue. It counts paused trials against
  ``max_concurrent_trials``, and never ends a trial that nobody resumes. Here the scheduler names the trial that gets a
  free slot; otherwise a new trial gets it. Trials that still wait when nothing runs and nothing can come are ended.
- Its saved state can be truncated and lags behind by 10 s or more. It forgets the scheduler, and starts trials again
  that ended while they were paused. Here Ray saves no state. `tuner.search.recovery` rebuilds a search from its
  journal. `tuner.execution.restore_trials` restores the trials that have not ended.
- Ray does not report whether a trial's function returned or was stopped.
- Ray retries failed trials without asking why they failed, and never finds a trial that hangs. Both are in
  `tuner.execution.retrying_controller`.

``Tuner.fit`` builds its controller from the name in ``ray.tune.tune``; `replaces_rays` puts this one there for the
time of a search.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import ray.tune.execution.tune_controller
import ray.tune.tune
from ray.tune import Callback, PlacementGroupFactory, Stopper
from ray.tune.error import _TuneStopTrialError
from ray.tune.experiment import Trial as RayTrial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.result import DONE, RESULT_DUPLICATE
from ray.tune.schedulers import TrialScheduler
from ray.tune.stopper import CombinedStopper

from tuner.errors import EnvironmentFailure, InputError, TunerError
from tuner.execution.budget import BudgetStopper
from tuner.execution.commanded_controller import CommandedController
from tuner.execution.consumption_meter import CONSUMED
from tuner.execution.failure_classifier import MissingMetric, raised_in_trial
from tuner.execution.prestarted_actors import SameEnvironment
from tuner.execution.recorder import Recorder
from tuner.execution.restore_trials import restore_trial
from tuner.execution.retry_policy import FailureStopper, first_alike, with_micro_batch
from tuner.execution.retrying_controller import ActorManager
from tuner.execution.scheduler_adapter import SchedulerAdapter
from tuner.execution.slots import SlotTracker
from tuner.execution.status_file import StatusFile
from tuner.plan.plan import Plan
from tuner.runs.commands import Command
from tuner.runs.results import how_to_resume
from tuner.runs.trial import Trial
from tuner.search.control import SearchControl
from tuner.trainable.old_interfaces import NOTICE, is_known
from tuner.training.reporting import ProcessGroupNotFormed

KEEP_IDLE_S = 60.0
"""How long a process that has nothing to do is kept where an autoscaler could end its node."""

AT_ONCE, TURN_S = 10, 0.01
"""Up to ``AT_ONCE`` running trials hand over each report at once. With more, each trial collects its reports for
``TURN_S`` seconds times the number of trials above that. One call of a process costs the driver and the process a
millisecond each, whatever it brings (tests/benchmarks/digest.py).
"""


@contextlib.contextmanager
def replaces_rays(recorder: Recorder, control: SearchControl, budget: BudgetStopper, plan: Plan) -> Iterator[None]:
    """Within: ``Tuner.fit`` runs on our controller, which continues the trials of ``recorder`` that have not ended.

    Recorder and budget reach Ray here and not through ``RunConfig``, which Ray pickles with all that it holds.
    """
    members = {"recorder": recorder, "control": control, "budget": budget, "plan": plan}
    ours = type("Controller", (Controller,), members)
    with (
        mock.patch.multiple(ray.tune.tune, TuneController=ours, ExperimentAnalysis=_no_analysis),
        mock.patch.object(ray.tune.execution.tune_controller, "RayActorManager", ActorManager),
    ):
        yield


def _no_analysis(**options: Any) -> Any:
    """In place of what ``Tuner.fit`` makes of Ray's saved state: a run folder has all of it."""
    return SimpleNamespace(trials=[])


class Controller(CommandedController):
    """One search's control loop."""

    def __init__(self, *, callbacks: list[Callback], stopper: Stopper | None, **options: Any) -> None:
        self._saved_and_idle: set[RayTrial] = set()
        self._lost_while_idle: set[RayTrial] = set()
        self._idle_kept: dict[PlacementGroupFactory, int] = {}
        """Idle processes that are kept at most, by what their trials asked for."""
        self._idle_since: dict[Any, float] = {}
        self._disk_full_reason = ""
        self._live = StatusFile(self.recorder, self.plan.request, self.plan.spec.resources.workers)
        self._adapter = options["scheduler"] if isinstance(options["scheduler"], SchedulerAdapter) else None
        if self._adapter:
            self._adapter.state, self._adapter.recorder = self.recorder.state, self.recorder
            self._adapter.controller, self._adapter.give_up = self, self.give_up
        failures = FailureStopper(self.plan.spec.failures, self.recorder.usage, self.control)
        limits = CombinedStopper(self.budget, failures)
        silent = [callback for callback in callbacks if not isinstance(callback, TrialProgressCallback)]
        super().__init__(callbacks=[*silent, self.recorder], stopper=limits, **options)
        if self.plan.cluster.address is None:
            self._class_cache = SameEnvironment()
        self._room = SlotTracker(self.plan, self._nodes.aside, self._gpus_aside)

    def setup_experiments(self, experiments: list[Any], total_num_samples: int) -> None:
        super().setup_experiments(experiments, total_num_samples)
        self._go_on()

    def on_step_end(self) -> None:
        super().on_step_end()
        if self._live.is_due():
            states = {trial.trial_id: self._state_of(trial) for trial in self.get_live_trials()}
            self._live.write(states, self.slots, more=not self._search_alg.is_finished())
        self._release_ended()

    def _state_of(self, trial: RayTrial) -> str:
        """The state of a trial that has not ended, in the words of `tuner.execution.status_file`."""
        if trial in self._held:
            return "held"
        if trial in self._aside:
            return "aside"
        if trial.status == RayTrial.PENDING:
            return "starting" if trial in self._trial_to_actor else "queued"
        return str(trial.status).lower()

    def _release_ended(self) -> None:
        """Forgets the trials that have ended: Ray keeps 23 kB of each."""
        for trial in self._stopped_trials | self._failed_trials:
            if trial in self._trial_to_actor or not self.recorder.results.trial(trial.trial_id).has_ended:
                continue
            for trials in (self._stopped_trials, self._failed_trials, self._live_trials, self._trials_to_cache):
                trials.discard(trial)
            self._trials.remove(trial)
            del self._by_id[trial.trial_id]
            self._forget(trial.trial_id)

    @property
    def slots(self) -> int:
        """Trials that run at once at most."""
        return self._room.slots

    def get_trial(self, trial_id: str) -> RayTrial | None:
        return self._by_id.get(trial_id)

    def checkpoint(self, force: bool = False, wait: bool = False) -> None:
        """Nothing: the journal is what a search is resumed from, and Ray's state would be a second one."""

    def _go_on(self) -> None:
        """Takes up the trials that are known and have not ended."""
        results, search = self.recorder.results, self._search_alg
        search._counter = results.suggested
        for trial in results.trials:
            if trial.has_ended:
                continue
            revived = self.recorder.storing.insist(functools.partial(restore_trial, trial, results, search))
            self.add_trial(revived)
            if trial.id in self.recorder.state.paused:
                self._set_trial_status(revived, RayTrial.PAUSED)

    def _schedule_trial_train(self, trial: RayTrial) -> None:
        self._schedule_trial_task(
            trial=trial,
            method_name="next_reports",
            args=(min(TURN_S * max(0, len(self._running_trials) - AT_ONCE), self._hang_detector.least / 4),),
            on_result=self._on_training_result,
            on_error=self._trial_task_failure,
        )

    def _process_trial_results(self, trial: RayTrial, results: list[dict[str, Any]]) -> None:
        """One after the other, up to the first that leads to anything but continuing, or at which the search ends.

        Ray would carry out the decision on the first beside that on the last, where this one has to wait for a save.
        """
        for result in results:
            self._queued_trial_decisions.pop(trial.trial_id, None)
            if self._process_trial_result(trial, result) != TrialScheduler.CONTINUE or self.budget.stop_all():
                break

    def _answer(self, command: Command) -> None:
        super()._answer(command)
        self._live.hurry()

    # --- bookkeeping ---

    def add_trial(self, trial: RayTrial) -> None:
        self._by_id[trial.trial_id] = trial
        if self.recorder.results.get(trial.trial_id) is None:  # else it is taken up again
            micro_batch = self._fitting_micro_batch(trial)
            self.recorder.added(trial, micro_batch, self._origins.pop(trial.trial_id, None))
            trial.set_config(with_micro_batch(trial.config, micro_batch))
        super().add_trial(trial)
        slots = self.slots
        self._max_pending_trials = slots  # processes that may be starting at once: Ray starts one after the other
        request = trial.placement_group_factory  # only now has the trial one, which is the cache's key
        if slots > (kept := self._idle_kept.get(request, 0)):
            self._actor_cache.increase_max(request, slots - kept)
            self._idle_kept[request] = slots

    def _process_trial_result(self, trial: RayTrial, result: dict[str, Any]) -> Any:
        trial.run_metadata.checkpoint_manager._checkpoint_results.clear()  # the latest, which is needed, stands apart
        self.recorder.measured(trial.trial_id, result.pop(CONSUMED, None))
        notice = result.pop(NOTICE, "")
        if notice and not is_known(notice, self.recorder.results.notices):
            self.recorder.notify(notice)
        if RESULT_DUPLICATE in result or result.get(DONE):  # the trainable itself may say `done`
            self.recorder.returned(trial.trial_id)
        return super()._process_trial_result(trial, result)

    def _process_trial_failure(self, trial: RayTrial, exception: Any) -> None:
        """A failure that every trial would meet ends the search, as long as no trial of it has reported."""
        if isinstance(exception, _TuneStopTrialError):  # a searcher's, a listener's or ours: no trial is to blame
            raise exception
        super()._process_trial_failure(trial, exception)
        missing = raised_in_trial(exception, MissingMetric, ProcessGroupNotFormed)
        if missing and not any(known.reports for known in self.recorder.results.trials):
            self.give_up(InputError(str(missing)))
        elif self.plan.spec.failures.stop_after == "auto":
            self._end_if_hopeless(self.recorder.results.trial(trial.trial_id))

    def _end_if_hopeless(self, trial: Trial) -> None:
        """Ends the search if its first trials failed like ``trial``."""
        if not trial.failures:
            return
        failure = trial.failures[-1]
        if count := first_alike(failure, self.recorder.results.trials, self.slots):
            remedy = "mend it and resume, or set failures.stop_after to null"
            kind = EnvironmentFailure if failure.kind == "data" else InputError
            self.give_up(kind(f"the first {count} trials failed before any report: {failure.message}: {remedy}"))

    def _storage_lost(self, trial: RayTrial, why: str) -> None:
        self.control.storage_lost(self.recorder.results.folder, why)
        self._saved_and_idle.add(trial)

    def give_up(self, error: TunerError) -> None:
        """Ends the search with an error that every trial would meet."""
        self.control.fatal = error
        self.request_stop_experiment()

    # --- who gets a free slot ---

    def _maybe_update_trial_queue(self) -> None:
        if self.control.interrupted or self._is_disk_full() or self.recorder.storing.fails:
            return
        while len(self._running_trials) + len(self._pending_trials) - self._beside() < self.allowed:
            if self._next_aside():
                continue
            more = not self._search_alg.is_finished()
            if self._adapter and self._adapter.fill(more):
                continue
            busy = [trial.trial_id for trial in self._running_trials | self._pending_trials]
            if not more or self.budget.is_committed(busy) or not self._update_trial_queue(blocking=False):
                break
        idle = self.allowed and not self._running_trials and not self._pending_trials
        if self._adapter and idle and self._search_alg.is_finished():
            for trial in self._paused_trials - set(self._held):
                self.stop_trial(trial)

    def _is_disk_full(self) -> bool:
        """Whether nothing may start because the disk is nearly full; where nothing runs either, the search ends."""
        self._disk_full_reason = self.recorder.retention.disk_full_reason()
        if self._disk_full_reason and not self._running_trials and not self._trial_to_actor:
            resume = how_to_resume(self.recorder.results.folder)
            remedy = f"make room there, or lower the limit; to continue: {resume}"
            self.control.fatal = EnvironmentFailure(
                f"{self._disk_full_reason}, and no running trial can free any: {remedy}"
            )
            self.control.interrupted = True
        return bool(self._disk_full_reason)

    def _schedule_trial_pause(self, trial: RayTrial, should_checkpoint: bool = True) -> None:
        super()._schedule_trial_pause(trial, should_checkpoint)
        if not should_checkpoint:
            self.recorder.paused(trial.trial_id, aside=trial in self._aside)

    @contextlib.contextmanager
    def _counted_as_staged(self, trial: RayTrial) -> Iterator[None]:
        """Within, Ray finds ``trial`` among those that it is about to start."""
        if trial in self._staged_trials:
            yield
            return
        self._staged_trials.add(trial)
        try:
            yield
        finally:
            self._staged_trials.discard(trial)

    def _maybe_cache_trial_actor(self, trial: RayTrial) -> bool:
        """Ray keeps no idle process once the last trial was suggested, unless one is staged: paused ones need it."""
        with self._counted_as_staged(trial) if self._paused_trials else contextlib.nullcontext():
            kept = bool(super()._maybe_cache_trial_actor(trial))
        if kept:
            process = self._actor_cache._cached_objects[trial.placement_group_factory][-1]
            self._idle_since[process] = time.monotonic()
            if self.plan.spec.resources.fused > 1:  # its function stands at a report until another trial comes
                self._actor_manager.schedule_actor_task(process, "leave_others")
        return kept

    def _cleanup_cached_actors(self, force_all: bool = False) -> None:
        """Idle processes keep their resources, so that an autoscaler takes their node for busy, for ever."""
        super()._cleanup_cached_actors(force_all)
        if self.plan.cluster.autoscaler is None:
            return
        now = time.monotonic()
        for request, processes in self._actor_cache._cached_objects.items():
            while processes and now > self._idle_since[processes[0]] + KEEP_IDLE_S:
                process = self._actor_cache.pop_cached_object(request)
                del self._idle_since[process]
                process.set_on_stop(None)
                process.set_on_error(None)
                self._remove_actor(process)

    def _maybe_reuse_cached_actor(self, trial: RayTrial) -> bool:
        trial.init_local_path()  # Ray forgets it for a trial that takes an idle process before one was ordered for it
        return bool(super()._maybe_reuse_cached_actor(trial))

    # --- processes that cannot be reused ---

    def _on_trial_reset(self, trial: RayTrial, success: bool) -> None:
        if success:
            super()._on_trial_reset(trial, success)
        else:
            self._replace_process(trial)

    def _actor_failed(self, tracked_actor: Any, exception: Exception) -> None:
        trial = self._actor_to_trial.get(tracked_actor)
        if trial not in self._resetting_trials:
            super()._actor_failed(tracked_actor, exception)
            return
        self._lost_while_idle.add(trial)
        self._replace_process(trial)

    def _trial_task_failure(self, trial: RayTrial, exception: Exception) -> None:
        if trial in self._lost_while_idle:  # the second news of the same death
            self._lost_while_idle.discard(trial)
            return
        if trial in self._resetting_trials:  # what it raises is of the trial that the process ran before
            self._replace_process(trial)
            return
        super()._trial_task_failure(trial, exception)

    def _replace_process(self, trial: RayTrial) -> None:
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

    # --- Ctrl-C: running trials continue to their next checkpoint ---

    def _maybe_add_actors(self) -> None:
        if not self.control.interrupted and not self._disk_full_reason and not self.recorder.storing.fails:
            super()._maybe_add_actors()

    def _execute_action(self, trial: RayTrial, decision: str, after_save: bool = False) -> None:
        if self.control.interrupted and decision == TrialScheduler.CONTINUE and (after_save or not trial.checkpoint):
            self._saved_and_idle.add(trial)
        else:
            super()._execute_action(trial, decision, after_save)

    def is_finished(self) -> bool:
        if self.control.interrupted and self._running_trials <= self._saved_and_idle:
            return True
        return bool(super().is_finished())
