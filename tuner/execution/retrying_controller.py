"""Retries of trials that fail or hang, in place of Ray Tune's ``max_failures``.

Ray 2.60 retries all failed trials alike. It reports to the scheduler that the trial ended and that another one came. It
ends the whole search at errors that are neither of a task nor of an actor (no memory, a lost object, an exception that
cannot be read back).

Here the cause of the failure decides (`tuner.execution.retry_policy`). For the scheduler and the searcher a trial that
is retried never stopped: `tuner.search.state.SearchState.report` ignores what it reports a second time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.air.execution._internal import RayActorManager
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError
from ray.tune.experiment import Trial as RayTrial
from ray.tune.result import RESULT_DUPLICATE, TRAINING_ITERATION
from ray.tune.schedulers import TrialScheduler

from tuner.errors import UserCodeRaised
from tuner.execution.actor_hosts import cause_of_death, locate_actor
from tuner.execution.failure_classifier import (
    DamagedCheckpoint,
    ProcessLost,
    StorageFails,
    StorageUnseen,
    Unreachable,
    classify,
    raised_in_trial,
)
from tuner.execution.hang_detector import HangDetector, HungTrialKiller
from tuner.execution.memory_monitor import MemoryMonitor, OutOfMemoryKills
from tuner.execution.placement import PlacedTrials
from tuner.execution.restore_trials import skip_damaged_checkpoints
from tuner.execution.retry_policy import (
    MEMORY,
    MICRO_BATCH,
    alike,
    back_off,
    decide_retry,
    total_gib,
    with_micro_batch,
)
from tuner.execution.scheduler_adapter import reported_checkpoint
from tuner.runs.failure import Failure, MemoryKind
from tuner.runs.results import RAY, TRIAL_LOG
from tuner.runs.trial import Trial
from tuner.search.memory_model import attempts_of, fitting_micro_batch
from tuner.search.node_health import LOSSES
from tuner.spec.configuration import flat, merge

UNREACHABLE_S = 60.0
"""Within this time Ray's control store knows whether a process that cannot be reached has died, or its node."""
ANSWER_S = 30.0
"""How long a node is asked whether its kernel killed a process: it may have to start one, and may be busy."""
MOST_TRIALS = 1000
"""Of the latest trials, those whose memory is looked at."""
USABLE = 0.9
"""Of a GPU's memory, the share that torch can allocate to tensors: the context and fragments take the rest."""
LOG_TAIL = 65536
"""Bytes of an attempt's output in which the reason of its death is looked for."""


def _here() -> str:
    """Ray's id of the driver's node."""
    return str(ray.get_runtime_context().get_node_id())


class ActorManager(RayActorManager):  # type: ignore[misc]
    """Ray's, for which every error in place of a result is either the task's or its process's."""

    def _actor_task_failed(self, tracked_actor_task: Any, exception: BaseException) -> None:
        if not isinstance(exception, RayActorError | RayTaskError):
            exception = ProcessLost(exception)
        super()._actor_task_failed(tracked_actor_task, exception)


class RetryingController(PlacedTrials):
    """Ray's control loop, which tries failed trials again as the experiment's ``failures`` say."""

    def __init__(self, **options: Any) -> None:
        self._hang_detector = HangDetector(
            self.plan.spec.failures.hang_after, may_wait=self.plan.spec.resources.fused > 1
        )
        self._hung_trial_killer = HungTrialKiller(self._hang_detector)
        self._memory_monitor = MemoryMonitor()
        self._looked = time.monotonic()
        """When what the processes hold was counted last."""
        self._memory_ran_out = any(f.micro_batch for known in self.recorder.results.trials for f in known.failures)
        """Whether a micro-batch was halved in this search, so that peaks are looked at."""
        self._told_of_memory = False
        self._printed: dict[str, int] = {}
        """Of each trial: size of its log when its latest attempt started."""
        self._unreachable: dict[RayTrial, tuple[ActorUnavailableError, float]] = {}
        """Of each trial whose process cannot be reached: the error, and until when the reason is waited for."""
        self._kills = OutOfMemoryKills()
        self._examined: dict[RayTrial, tuple[RayActorError, Callable[[], bool | None], float]] = {}
        """Of each trial whose process died on another node: the error, whether that node's kernel has killed for lack
        of memory, and until when its answer is waited for."""
        self._node_was_full: dict[RayTrial, bool] = {}
        """The answer to that, of the trial whose failure is digested."""
        super().__init__(**options)

    def on_step_begin(self) -> None:
        super().on_step_begin()
        self._memory_monitor.look()
        since, self._looked = self._looked, time.monotonic()
        self.recorder.usage.hold((self._actor_manager.num_live_actors + self._places.kept) * (self._looked - since))
        if self.recorder.storing.fails:  # trials wait for it too
            self._hang_detector.skip()
        self._hung_trial_killer.look(
            {trial.trial_id: trial.temporary_state.ray_actor for trial in self._running_trials}
        )

        for trial, (error, deadline) in list(self._unreachable.items()):
            if (cause := cause_of_death(error.actor_id)) or time.monotonic() > deadline:
                del self._unreachable[trial]
                self._process_trial_failure(trial, Unreachable(error.actor_id, cause))
        for trial, (died, killed, deadline) in list(self._examined.items()):
            if (answer := killed()) is not None or time.monotonic() > deadline:
                del self._examined[trial]
                self._node_was_full[trial] = bool(answer)
                self._process_trial_failure(trial, died)
                self._node_was_full.pop(trial, None)

    def _actor_started(self, tracked_actor: Any, log: str = "STARTED") -> None:
        trial = self._actor_to_trial[tracked_actor]
        self._attempt_begins(trial)
        self._printed[trial.trial_id] = self._log_size(trial)
        super()._actor_started(tracked_actor, log)
        self._note_start(trial)
        node, _ = self._attempts[trial.trial_id]
        if node not in ("", _here()):
            self._kills.started(node)

    def _forget(self, trial_id: str) -> None:
        super()._forget(trial_id)
        self._printed.pop(trial_id, None)
        self._hang_detector.ended(trial_id)

    def _attempt_begins(self, trial: RayTrial) -> None:
        source = trial.latest_checkpoint_result
        self._hang_detector.started(trial.trial_id, source.metrics.get(TRAINING_ITERATION, 0) if source else 0)

    def _process_trial_result(self, trial: RayTrial, result: dict[str, Any]) -> Any:
        if RESULT_DUPLICATE not in result:
            self._hang_detector.reported(trial.trial_id, result[TRAINING_ITERATION])
            self._note_report(trial)
        return super()._process_trial_result(trial, result)

    # --- what a failure leads to ---

    def _process_trial_failure(self, trial: RayTrial, exception: Any) -> None:
        if trial.status not in (RayTrial.RUNNING, RayTrial.PENDING):
            return
        if isinstance(exception, ActorUnavailableError):
            self._unreachable[trial] = exception, time.monotonic() + UNREACHABLE_S
            return
        if self._is_examined(trial, exception):
            return
        ours = self.recorder.results.trial(trial.trial_id)
        lost = raised_in_trial(exception, StorageUnseen, StorageFails)
        if lost and not self.recorder.storing.answers():  # not there, and not here: no trial is to blame
            self.recorder.discard_unreported(ours)
            self._try_again(trial, exception, ours.micro_batch)
            return
        if isinstance(lost, StorageUnseen):
            self._storage_lost(trial, str(lost))
            return
        if raised_in_trial(exception, DamagedCheckpoint) and skip_damaged_checkpoints(trial, self.recorder):
            trial.temporary_state.restoring_from = None
            self._go_on_from_latest(trial)
            return
        decided = self._cached_trial_decisions.get(trial.trial_id)
        if trial.is_saving:  # the checkpoint of its latest report is there, only Ray was not told of it
            if saved := reported_checkpoint(trial, trial.last_result):
                trial.on_checkpoint(saved)
            trial.temporary_state.saving_to = None
            self._cached_trial_decisions.pop(trial.trial_id, None)
            if decided == TrialScheduler.STOP:
                self.stop_trial(trial)
                return
        failure = self._failure(trial, exception)
        rules = self.plan.spec.failures
        reducible = self._micro_batch(trial) if failure.kind in MEMORY else None
        alone = self._note_failure(trial, exception, failure)
        self._put_gpu_aside(trial, failure)
        found = decide_retry(rules, failure, ours.failures, reducible, alone, self._is_common(ours, failure))
        if alone and found.action == "fail":
            failure = replace(failure, message=f"{failure.message}; the latest {LOSSES} that were lost had this trial")
        failure = replace(failure, micro_batch=found.micro_batch, final=found.action != "retry")
        self._memory_ran_out |= failure.micro_batch is not None
        self.recorder.failed_attempt(trial.trial_id, failure)
        if found.action == "retry":
            self._keep_place(trial)
            self._try_again(trial, exception, ours.micro_batch, back_off(ours.failures))
            return
        super()._process_trial_failure(trial, exception)
        if found.action == "stop":
            self.recorder.stopped_by(trial.trial_id, failure, f"failures.on_nan: {rules.on_nan}")
        else:
            self.recorder.failed(trial.trial_id, failure)

    def _is_common(self, ours: Trial, failure: Failure) -> bool:
        """Whether another trial failed alike, none has reported, and there is no other node to try it on."""
        if self.plan.spec.failures.stop_after != "auto" or len(self.plan.cluster.nodes) > 1:
            return False
        return bool(alike(failure, (other for other in self.recorder.results.trials if other is not ours)))

    def _is_examined(self, trial: RayTrial, exception: BaseException) -> bool:
        """Whether its node is asked first why the trial's process died, which the driver sees on its own node only."""
        if trial in self._examined:
            return True
        if not isinstance(exception, RayActorError) or trial in self._node_was_full:
            return False
        node = locate_actor(exception.actor_id).node if exception.actor_id else ""
        if node in ("", _here()) or classify(exception).kind != "process died":
            return False
        self._examined[trial] = exception, self._kills.died(node), time.monotonic() + ANSWER_S
        return True

    def _go_on_from_latest(self, trial: RayTrial) -> None:
        """Starts the trial in its process, from its latest checkpoint where it has one."""
        self._attempt_begins(trial)
        if not self._schedule_trial_restore(trial):
            self._schedule_trial_train(trial)

    def _storage_lost(self, trial: RayTrial, why: str) -> None:
        """The trial could not write to the run folder: no trial is to blame."""
        raise NotImplementedError

    def _failure(self, trial: RayTrial, exception: BaseException) -> Failure:
        full = self._node_was_full.get(trial, False)
        if isinstance(exception, RayActorError) and exception.actor_id:
            full = full or (locate_actor(exception.actor_id).node == _here() and self._memory_monitor.was_full())
        return classify(
            exception,
            self._hang_detector.step(trial.trial_id),
            hung=self._hung_trial_killer.killed(trial.trial_id),
            memory_was_full=full,
            log=self._log_end(trial),
        )

    def _log(self, trial: RayTrial) -> Path | None:
        """The file with what the trial has printed; None if it is not on this machine."""
        folder = self.recorder.results.folder
        return folder.local_path / RAY / trial.trial_id / TRIAL_LOG if folder.is_local else None

    def _log_size(self, trial: RayTrial) -> int:
        file = self._log(trial)
        with contextlib.suppress(OSError):
            return file.stat().st_size if file else 0
        return 0

    def _log_end(self, trial: RayTrial) -> str:
        """The last that the latest attempt printed; empty if it cannot be read."""
        file, size = self._log(trial), self._log_size(trial)
        with contextlib.suppress(OSError):
            if file is not None:
                with file.open("rb") as stream:
                    stream.seek(max(self._printed.get(trial.trial_id, 0), size - LOG_TAIL))
                    return stream.read().decode(errors="replace")
        return ""

    def _micro_batch(self, trial: RayTrial) -> int | None:
        """The one that the trial had; None if its trainable declares none."""
        config = dict(trial.config)
        reduced = config.pop(MICRO_BATCH, None)
        return self._size(config | ({} if reduced is None else {"micro_batch": reduced}))

    def _size(self, config: dict[str, Any]) -> int | None:
        """The micro-batch of a configuration; None also if the trainable refuses it, of which its trial will fail."""
        try:
            return self.plan.trainable.micro_batch(merge(self.plan.spec.params, config))
        except UserCodeRaised:
            return None

    def _fitting_micro_batch(self, trial: RayTrial) -> int | None:
        """The smaller micro-batch with which a new trial starts, by what earlier ones needed; None: its own."""
        if not self._memory_ran_out or (own := self._micro_batch(trial)) is None:
            return None
        trials, smaller = self.recorder.results.trials, own
        for kind in MEMORY:
            attempts = [
                attempt
                for known in trials[-MOST_TRIALS:]
                if (size := self._size(known.first_config)) is not None
                for attempt in attempts_of(known, size, kind)
            ]
            smaller = min(smaller, fitting_micro_batch(attempts, dict(flat(trial.config)), own, self._capacity(kind)))
        if smaller == own:
            return None
        if not self._told_of_memory:
            self.recorder.notify(
                "memory: trials that need more than there is, by the peaks of earlier ones, start with a smaller "
                "micro_batch; the column micro_batch of trials.csv has it"
            )
        self._told_of_memory = True
        return smaller

    def _capacity(self, kind: MemoryKind) -> float | None:
        """GiB of GPU memory that a trial may use, by torch's messages; None if none tells it."""
        if kind != "GPU memory":
            return None
        told = [
            total
            for known in self.recorder.results.trials
            for failure in known.failures
            if (total := total_gib(failure.message)) is not None
        ]
        return min(told) * USABLE * min(1.0, self.plan.request.get("GPU", 0.0)) if told else None

    def _try_again(
        self, trial: RayTrial, exception: BaseException, micro_batch: int | None, after: float = 0.0
    ) -> None:
        """Queues the trial ``after`` so many seconds; it continues from its latest checkpoint in another process."""
        self._cached_trial_decisions.pop(trial.trial_id, None)
        self._queued_trial_decisions.pop(trial.trial_id, None)
        trial.set_config(with_micro_batch(trial.config, micro_batch))
        self._schedule_trial_stop(trial, exception=exception)
        if trial.trial_id in self.recorder.state.paused:  # it died on its way to pause
            self._set_trial_status(trial, RayTrial.PAUSED)
            self.recorder.paused(trial.trial_id)
        elif after:
            self._set_trial_status(trial, RayTrial.PAUSED)
            self._held[trial] = time.monotonic() + after
        else:
            self._set_trial_status(trial, RayTrial.PENDING)
