"""One trial inside its process: Ray Tune calls this class, this class calls the user's function."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyarrow.fs import LocalFileSystem
from ray import get_runtime_context
from ray.exceptions import RayError
from ray.train._internal.session import _TrainingResult, get_session
from ray.train._internal.storage import StorageContext
from ray.tune.result import DONE, RESULT_DUPLICATE, SHOULD_CHECKPOINT, TIME_THIS_ITER_S, TIME_TOTAL_S
from ray.tune.trainable import FunctionTrainable
from ray.util import get_current_placement_group

from tuner.execution import mps
from tuner.execution.attempt_storage import AttemptStorage
from tuner.execution.consumption_meter import CONSUMED, ConsumptionMeter
from tuner.execution.failure_classifier import (
    BadReport,
    DamagedCheckpoint,
    StorageFails,
    UserError,
    print_traceback,
    user_error,
)
from tuner.execution.fused_process import Start
from tuner.execution.fused_trial import FusedTrial, Seat
from tuner.execution.process_reset import ProcessState, output_to
from tuner.execution.report_interceptor import ReportInterceptor
from tuner.execution.stacks import answer_signal
from tuner.execution.storage_check import check_visible_here
from tuner.execution.trial_context import NO_REPORT, TrialContext, check_formed, checked, run_function
from tuner.execution.worker_group import ranks
from tuner.runs.results import TRIAL_LOG
from tuner.schedulers.base import SchedulerSpec
from tuner.search.storage_patience import is_of_a_full_disk
from tuner.storage.folder import RunFolder
from tuner.storage.manifest import find_damage
from tuner.trainable.old_interfaces import NOTICE, news

_RANK_FAILED = "tuner/rank_failed"
"""Key of the error of another rank, in what stands in place of a report that will not come."""


def trainable_class(
    task: TrialContext, every: int, scheduler: SchedulerSpec, storage_patience: float
) -> type[FunctionTrainable]:
    """The class that Ray Tune starts for each trial of ``task``."""
    members = {"task": task, "every": every, "scheduler": scheduler, "storage_patience": storage_patience}
    return type("Trial", (TrialProcess,), members)


class TrialProcess(FunctionTrainable):  # type: ignore[misc]
    """A process that runs trials one after the other, each in a thread of its own."""

    task: TrialContext
    every: int
    """Of the checkpoints that a trial reports, every that many is written."""
    scheduler: SchedulerSpec
    """It tells at which reports a trial may be paused, and needs a checkpoint."""
    _storage: StorageContext
    storage_patience: float
    """Seconds for which the run folder is tried again where it fails."""

    def setup(self, config: dict[str, Any]) -> None:
        answer_signal()
        mps.join(self.task)  # before CUDA starts
        self._process = ProcessState()
        self._meter = ConsumptionMeter()
        self._place = get_current_placement_group()
        self._reports = 0
        self._raised: Exception | None = None
        self._storage = AttemptStorage(self._storage, self.storage_patience)
        super().setup(config)
        self._saving = ReportInterceptor(get_session(), self.every, self.scheduler)
        job = get_runtime_context().get_job_id()
        self._seat = Seat(self.task, f"{self._storage.experiment_fs_path} {job}") if self.task.fused > 1 else None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Gets ready for another trial; False says that this process has to be replaced."""
        self._storage = AttemptStorage(self._storage, self.storage_patience)
        if not super().reset_config(new_config):
            return False
        self._reports = 0
        self._raised = None
        self._saving.begin({})
        session = get_session()
        session.iteration, session.time_total, session.last_report_time = 0, 0.0, time.time()
        leaks = self._process.find_leaks()
        if leaks:
            print("the process is replaced:", "; ".join(leaks), flush=True)
        return not leaks

    def _trainable_func(self, config: dict[str, Any]) -> Any:
        session, storage = get_session(), self._storage
        log = storage.insist(self._log_file)
        with output_to(log):
            try:
                with self._meter.running():
                    self._call(config, session.report, log)
                self._saving.settle()
            except (UserError, RayError, StorageFails) as error:  # UserError and RayError: of another rank
                print_traceback(error)
                raise
            except Exception as error:  # noqa: BLE001 - the user's code may raise anything
                print_traceback(error)
                if isinstance(error, OSError) or is_of_a_full_disk(error):
                    storage.check()  # it may be the run folder that fails
                raise user_error(error) from None  # Ray copies causes, which not every exception survives
            finally:
                storage.insist(lambda: self._store(log))
        session.report({RESULT_DUPLICATE: True})

    def _call(self, config: dict[str, Any], report: Callable[[dict[str, Any]], None], log: Path) -> None:
        if self._seat is not None:
            self._train_with_others(self._seat, config)
            return
        if self.task.workers == 1:
            run_function(self._process, self.task, config, report)
            return
        shared = log if self._stored_locally else None
        results = get_session().result_queue

        def failed(error: BaseException) -> None:
            results.put(_TrainingResult(checkpoint=None, metrics={_RANK_FAILED: error}))

        with ranks(self.task, config, self._place, shared, failed, self._meter) as environment:
            run_function(self._process, self.task, config, report, environment)

    def _train_with_others(self, seat: Seat, config: dict[str, Any]) -> None:
        session = get_session()
        with tempfile.TemporaryDirectory(prefix="tuner-fused-start-") as folder:
            checkpoint = None
            if session.loaded_checkpoint is not None:
                checkpoint = Path(session.loaded_checkpoint.to_directory(folder))
            trial = FusedTrial(
                Start(config, self._saving.number, checkpoint),
                session.report,
                decides=self._saving.will_decide,
                is_over=session.stop_event.is_set,
            )
            self._meter.others = trial
            seat.train(trial)

    def leave_others(self) -> None:
        """The trial has been stopped or paused: those that train with it need not wait for it."""
        if self._seat is not None:
            self._seat.end_trial()

    def restore(self, checkpoint_result: Any) -> None:
        """As Ray's. Raises DamagedCheckpoint, here and not in the driver, which would stand still while it reads."""
        self._check_storage()
        checkpoint = checkpoint_result.checkpoint
        if problem := find_damage(RunFolder(checkpoint.filesystem, checkpoint.path, checkpoint.path)):
            raise DamagedCheckpoint(problem)
        super().restore(checkpoint_result)

    def _check_storage(self) -> None:
        run_folder = str(Path(self._storage.experiment_fs_path).parent)
        folder = RunFolder(self._storage.storage_filesystem, run_folder, run_folder)
        self._storage.insist(lambda: check_visible_here(folder))

    def load_checkpoint(self, checkpoint_result: Any) -> None:
        super().load_checkpoint(checkpoint_result)
        self._saving.begin(checkpoint_result.metrics)
        get_session().time_total = checkpoint_result.metrics.get(TIME_TOTAL_S, 0.0)  # Ray starts again from 0

    def next_reports(self, seconds: float) -> list[dict[str, Any]]:
        """The trial's next report; with ``seconds`` also those that come within them, up to one that may stop it.

        Called with 0 the trial stands at its report until the next call, as in Ray's ``train``. Otherwise it stands
        only at one on which the scheduler may decide, that comes with a checkpoint, or is the last. (Ray's own
        ``train_buffered`` continues over the decisions of schedulers, and keeps a report until the next one comes.)
        """
        if self._raised is not None:
            raise self._raised
        if not self._reports:
            self._check_storage()
        session = get_session()
        if not session.training_started or not session._first_report:  # else it has continued since the last call
            self._since = time.monotonic()
        until, reports = time.monotonic() + seconds, [self.train()]
        while seconds and not self._must_pause_at(reports[-1]) and self._wait_for_report(until):
            try:
                reports.append(self.train())
            except Exception as error:  # noqa: BLE001 - the next call raises it: what was reported before comes first
                self._raised = error
                break
        return reports

    def _must_pause_at(self, report: dict[str, Any]) -> bool:
        return (
            RESULT_DUPLICATE in report or SHOULD_CHECKPOINT in report or bool(report.get(DONE)) or self._saving.decides
        )

    def _wait_for_report(self, until: float) -> bool:
        """Lets the trial continue; whether it has reported again before ``until``, on the monotonic clock."""
        session = get_session()
        self._since = time.monotonic()
        session.continue_lock.release()
        session._first_report = True  # it continues: the session must not release it once more
        queue = session.result_queue
        with queue.not_empty:
            return bool(queue.not_empty.wait_for(lambda: queue.queue, until - time.monotonic()))

    def step(self) -> dict[str, Any]:
        metrics: dict[str, Any] = super().step()
        if _RANK_FAILED in metrics:
            raise metrics[_RANK_FAILED]
        if RESULT_DUPLICATE not in metrics:
            self._reports += 1
            metrics[TIME_THIS_ITER_S] = self._saving.at - self._since  # Ray takes it of its call
            if self._reports == 1 and self.task.workers > 1 and self.task.repeat is None:
                check_formed(self.task.workers)
            metrics.update(checked(self.task, self._reports, metrics))  # in place: Ray ranks checkpoints by them
            metrics[CONSUMED] = self._meter.read(self._saving.seconds_of_checkpoints())
        elif not self._reports and get_session().loaded_checkpoint is None:
            raise BadReport(NO_REPORT)
        if notice := news():
            metrics[NOTICE] = notice
        return metrics

    def cleanup(self) -> None:
        """As Ray's; then the trial's function, which stands in a report, gets the time to end that Ray gives it.

        Ray ends the process without it: what the function does in a ``finally``, and the ``cleanup`` of a class.
        """
        thread, started = get_session().training_thread, get_session().training_started
        try:
            super().cleanup()
        finally:
            if started:
                threading.Thread.join(thread, float(os.environ.get("TUNE_FUNCTION_THREAD_TIMEOUT_S", 2)))

    def _log_file(self) -> Path:
        """The folder for output: the run folder itself if this node can write there, so that it survives a crash."""
        folder = Path(self._storage.trial_fs_path if self._stored_locally else self._storage.trial_working_directory)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TRIAL_LOG).touch()
        return folder / TRIAL_LOG

    def _store(self, log: Path) -> None:
        if not self._stored_locally:
            target = f"{self._storage.trial_fs_path}/{TRIAL_LOG}"
            with log.open("rb") as source, self._storage.storage_filesystem.open_output_stream(target) as sink:
                shutil.copyfileobj(source, sink)

    @property
    def _stored_locally(self) -> bool:
        return isinstance(self._storage.storage_filesystem, LocalFileSystem)
