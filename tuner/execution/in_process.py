"""One trial in this very process, without Ray around it: for a replay and for a debugger."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune
from ray.air._internal.torch_utils import contains_tensor
from threadpoolctl import threadpool_limits

from tuner.errors import TunerError
from tuner.execution.failure_classifier import BadReport
from tuner.execution.metrics import flat_metrics
from tuner.execution.process_reset import ProcessState, threads
from tuner.execution.stand_in_session import StandInSession, in_place_of_rays
from tuner.execution.trial_context import NO_REPORT, TrialContext, checked, run_function
from tuner.trainable.old_interfaces import news

Take = Callable[[int, dict[str, Any]], bool]
"""Gets the number of a report, from 1, and its metrics; says whether the trial continues."""


class _Over(SystemExit):
    """Raised in the user's function at its last report, as Ray ends one: ``except Exception`` lets it pass."""


@dataclass(kw_only=True)
class InProcessSession(StandInSession):
    """The session of the one trial; its folder, ``trial_dir``, is its own and holds the latest checkpoint."""

    task: TrialContext
    take: Take
    reports: int = 0
    broken: TunerError | None = None
    """Why the latest report cannot be compared: the trial fails with it."""
    over: bool = False
    """Whether the function was ended at its latest report."""

    def report(self, metrics: dict[str, Any], checkpoint: Any = None) -> None:
        """As ``ray.tune.report``, with the same errors; deletes the checkpoint before this one."""
        if "torch" in sys.modules and contains_tensor(metrics):
            raise ValueError("a report holds a torch tensor, which Ray refuses: report plain numbers, tensor.item()")
        if self.over:  # the function caught what ended it, and continued
            raise _Over
        if notice := news():
            print(f"NOTICE: {notice}", file=sys.stderr)
        self.reports += 1
        if checkpoint is not None:
            latest = Path(self.trial_dir, f"checkpoint_{self.reports:06}")
            checkpoint.to_directory(str(latest))
            for other in Path(self.trial_dir).glob("checkpoint_*"):
                if other != latest:
                    shutil.rmtree(other)
            self.loaded_checkpoint = tune.Checkpoint.from_directory(str(latest))
        try:
            self.over = not self.take(self.reports, flat_metrics(checked(self.task, self.reports, metrics)))
        except TunerError as error:
            self.broken, self.over = error, True
        if self.over:
            raise _Over


def run_in_process(
    task: TrialContext,
    config: dict[str, Any],
    take: Take,
    *,
    trial_id: str,
    on_error: Callable[[BaseException], None] = lambda error: None,
) -> BaseException | None:
    """Runs one trial of ``task`` in this process, and gives the process back with what `_given_back` names.

    As in a process that Ray starts for it, with the resources that ``task`` asks for: the same seed, working directory,
    import path and number of threads, no GPU where it asks for none. The function sees no checkpoint at its start;
    those that it reports are deleted at the end. Its output goes to stderr.

    Returns why the trial failed: what the function raised, or a BadReport; None if it did not. ``on_error`` is
    called with that while directory and environment are still the trial's.
    """
    with (
        tempfile.TemporaryDirectory(prefix="tuner-trial-") as folder,
        _given_back(),
        threadpool_limits(threads(task.cpu)),  # libraries loaded from here on read the environment
    ):
        if not task.request.get("GPU"):
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        bundles = tune.PlacementGroupFactory([dict(task.request)])
        session = InProcessSession(trial_id, bundles, folder, task=task, take=take)
        error: BaseException | None = None
        try:
            with in_place_of_rays(session), _prints_to_stderr():
                run_function(ProcessState(), task, config, session.report)
        except _Over:
            error = session.broken
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - the user's function may raise anything: it is returned
            error = raised
        if error is None and not session.reports:
            error = BadReport(NO_REPORT)
        if error is not None:
            on_error(error)
        return error


@contextlib.contextmanager
def _given_back() -> Iterator[None]:
    """Puts back what a trial changes: environment, directory, import path, modules, warnings, torch's threads."""
    environment, directory, path, arguments = dict(os.environ), Path.cwd(), list(sys.path), list(sys.argv)
    modules, torch = dict(sys.modules), sys.modules.get("torch")
    thread_count = torch.get_num_threads() if torch else 0
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)
        os.chdir(directory)
        sys.path[:], sys.argv[:] = path, arguments
        sys.modules.update(modules)
        if torch:
            torch.set_num_threads(thread_count)


@contextlib.contextmanager
def _prints_to_stderr() -> Iterator[None]:
    """Within, all that this process and its children write to stdout goes to stderr: stdout holds the result only."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)
