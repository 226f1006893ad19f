"""One trial inside its process: Ray Tune calls this class, this class calls the user's function.

`run_function` and `checked` are what a trial is; `tuner.engine.local` calls them too, without Ray's class around them.

Every report is checked here, before Ray sees it: in Ray 2.60 a report without the metric, or with None or text in its
place, kills the whole experiment; a NaN leaves Optuna's trial running for ever and is a success to HyperOpt; and a
function that never reports counts as completed.
"""

from __future__ import annotations

import inspect
import math
import shutil
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow.fs import LocalFileSystem
from ray.train._internal.session import get_session
from ray.tune.result import DEFAULT_METRIC, RESULT_DUPLICATE, TIME_TOTAL_S
from ray.tune.trainable import FunctionTrainable

from tuner.configuration import merge
from tuner.engine.failures import BadReport, MissingMetric, NotFinite, user_error
from tuner.engine.handover import Process, output_to, seed_all, seed_of
from tuner.engine.hanging import answer_signal
from tuner.engine.metrics import flat_metrics
from tuner.engine.retries import MICRO_BATCH
from tuner.engine.saving import Saving
from tuner.results import TRIAL_LOG
from tuner.schedulers.base import SchedulerSpec
from tuner.trainable import load_trainable

NO_REPORT = "ended without a report; call ray.tune.report({...}) at least once"


@dataclass(frozen=True)
class TrialTask:
    """What all trials of a run have in common."""

    trainable: str
    roots: tuple[Path, ...]
    working_directory: Path
    params: dict[str, Any]
    required: tuple[tuple[str, str], ...]
    """Names that every report must hold, each with the key of the experiment file that asks for it."""
    seed: int
    cpu: float


def run_function(
    process: Process, task: TrialTask, config: dict[str, Any], report: Callable[[dict[str, Any]], None]
) -> None:
    """Calls the user's function for a trial with ``config``, as if ``process`` were new; raises what it raises.

    ``report`` gets what it returns or yields.
    """
    config = dict(config)
    reduced = config.pop(MICRO_BATCH, None)  # is not part of the configuration, from which the seed comes
    seed = seed_of(task.seed, config)
    if reduced is not None:
        config["micro_batch"] = reduced
    process.fresh_start(task.working_directory, task.roots, seed, task.cpu)
    trainable = load_trainable(task.trainable, task.roots)
    process.loaded()
    seed_all(seed)
    output = trainable.train(trainable.make_config(merge(task.params, config)))
    for value in output if inspect.isgenerator(output) else [output]:
        if value is not None:
            report(value if isinstance(value, dict) else {DEFAULT_METRIC: value})


def checked(task: TrialTask, number: int, metrics: dict[str, Any]) -> dict[str, Any]:
    """The ``metrics`` of a trial's report ``number``, those that the experiment compares as plain numbers.

    Raises BadReport or MissingMetric where one of these is missing or no number, and NotFinite.
    """
    named, found = flat_metrics(metrics), dict(metrics)
    for name, key in task.required:
        if name == "training_iteration":  # counted by Ray itself
            continue
        if name not in named:
            message = f"{key}: the trainable reports no {name!r}; it reports: {', '.join(sorted(named)) or 'nothing'}"
            raise MissingMetric(message) if number == 1 else BadReport(f"report {number}: {message}")
        value = named[name]
        plain = value.item() if type(value).__module__ == "numpy" and getattr(value, "ndim", 0) == 0 else value
        if isinstance(plain, bool) or not isinstance(plain, (int, float)):
            raise BadReport(f"report {number}: {name} is {plain!r}, not a number")
        if not math.isfinite(plain):
            raise NotFinite(f"report {number}: {name} is {plain}")
        if "/" not in name:
            found[name] = plain
    return found


def trainable_class(task: TrialTask, every: int, scheduler: SchedulerSpec) -> type[FunctionTrainable]:
    """The class that Ray Tune starts for each trial of ``task``."""
    return type("Trial", (TrialProcess,), {"task": task, "every": every, "scheduler": scheduler})


class TrialProcess(FunctionTrainable):  # type: ignore[misc]
    """A process that runs trials one after the other, each in a thread of its own."""

    task: TrialTask
    every: int
    """Of the checkpoints that a trial reports, every that many is written."""
    scheduler: SchedulerSpec
    """It tells at which reports a trial may be paused, and needs a checkpoint."""

    def setup(self, config: dict[str, Any]) -> None:
        answer_signal()
        self._process = Process()
        self._reports = 0
        super().setup(config)
        self._saving = Saving(get_session(), self.every, self.scheduler)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Gets ready for another trial; False says that this process has to be replaced."""
        if not super().reset_config(new_config):
            return False
        self._reports = 0
        self._saving.begin({})
        session = get_session()
        session.iteration, session.time_total, session.last_report_time = 0, 0.0, time.time()
        leftovers = self._process.leftovers()
        if leftovers:
            print("the process is replaced:", "; ".join(leftovers), flush=True)
        return not leftovers

    def _trainable_func(self, config: dict[str, Any]) -> Any:
        session, log = get_session(), self._log_file()
        with output_to(log):
            try:
                run_function(self._process, self.task, config, session.report)
            except Exception as error:  # noqa: BLE001 - the user's code may raise anything
                traceback.print_exc()
                raise user_error(error) from None  # Ray copies causes, which not every exception survives
            finally:
                self._store(log)
        session.report({RESULT_DUPLICATE: True})

    def load_checkpoint(self, checkpoint_result: Any) -> None:
        super().load_checkpoint(checkpoint_result)
        self._saving.begin(checkpoint_result.metrics)
        get_session().time_total = checkpoint_result.metrics.get(TIME_TOTAL_S, 0.0)  # Ray starts again from 0

    def step(self) -> dict[str, Any]:
        metrics: dict[str, Any] = super().step()
        if RESULT_DUPLICATE not in metrics:
            self._reports += 1
            metrics.update(checked(self.task, self._reports, metrics))  # in place: Ray ranks checkpoints by them
        elif not self._reports and get_session().loaded_checkpoint is None:
            raise BadReport(NO_REPORT)
        return metrics

    def _log_file(self) -> Path:
        """Where output goes: the run folder itself where this node can write there, so that it survives a crash."""
        folder = Path(self._storage.trial_fs_path if self._stored_locally else self._storage.trial_working_directory)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / TRIAL_LOG

    def _store(self, log: Path) -> None:
        if not self._stored_locally:
            target = f"{self._storage.trial_fs_path}/{TRIAL_LOG}"
            with log.open("rb") as source, self._storage.storage_filesystem.open_output_stream(target) as sink:
                shutil.copyfileobj(source, sink)

    @property
    def _stored_locally(self) -> bool:
        return isinstance(self._storage.storage_filesystem, LocalFileSystem)
