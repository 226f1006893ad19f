"""Whether an experiment runs on this machine, for three steps of one trial.

The trial is a real one, started by `tuner.actions.run.run` with ``budget.trials: 1``: the same Ray, process,
checkpoints and run folder as in the search to come, so that what it shows holds for that. To end it after three reports
needs no machinery: ASHA with ``time_attr: training_iteration`` and ``max_t: 3`` ends every trial there. That replaces
the experiment's own scheduler, which the plan checks; its ``time_attr`` must be in the reports. Calling the function
without Ray would say nothing of the start of Ray and of processes, which is what goes wrong on new machines.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.actions.run import run
from tuner.doctor.finding import Finding
from tuner.doctor.system import DISK_ERROR, disk
from tuner.errors import EnvironmentFailure, InputError, Interrupted, TunerError
from tuner.execution.process_reset import output_to
from tuner.experiment.notify import Notify
from tuner.experiment.reader import Experiment, load_experiment
from tuner.plan.cluster import this_machine
from tuner.plan.plan import Plan
from tuner.plan.planner import make_plan
from tuner.runs.failure import Failure
from tuner.runs.results import RAY, TRIAL_LOG, ResultSet
from tuner.runs.trial import Trial
from tuner.spec.quantities import counted, format_bytes, format_duration
from tuner.storage.folder import RunFolder
from tuner.storage.manifest import size_of
from tuner.tracking import check_reachable
from tuner.tracking.delivery import Delivery
from tuner.trainable.trainable import load_trainable

if TYPE_CHECKING:
    from tuner.runs.trial import Report

STEPS = 3
"""Reports after which the trial ends."""
LIMIT_S = 300
"""The longest that the trial may take."""
LOG_LINES = 10
"""Last lines of a failed trial's log that are shown."""

_AS_A_TEST = (
    f"scheduler={{kind: asha, time_attr: training_iteration, max_t: {STEPS}, grace_period: {STEPS}}}",
    f"budget={{trials: 1, wall_clock: {LIMIT_S}}}",
    "tracking={}",
    "notify=null",
)


def check_experiment(source: str | Path, overrides: Sequence[str], storage: str) -> Iterator[Finding]:
    """The file, the code that it names, the plan, the data, what tracks it, and a trial; up to the first error."""
    check = "experiment"
    try:
        experiment = load_experiment(source, overrides)
        yield _fine(check, f"{experiment.file} is valid")
        check = "code"
        load_trainable(experiment.spec.trainable, experiment.roots, experiment.pickles)
        yield _fine(check, f"{experiment.spec.trainable} can be imported")
        check = "plan"
        plan = make_plan(experiment, this_machine())
        at_once = "1 trial at once" if plan.slots == 1 else f"{plan.slots} trials at once"
        yield _fine(check, f"{plan.trials} trials, {at_once} on {plan.cluster}")
        check = "data"
        yield _data(plan)
        if plan.spec.tracking.anywhere:
            check = "tracking"
            yield _tracking(plan, storage)
        if plan.spec.notify is not None:
            check = "notify"
            yield _notify(plan.spec.notify, plan.spec.name)
    except InputError as error:
        for problem in error.problems:
            told = str(problem).removeprefix(": ")
            yield _wrong(check, told, f"python -m tuner validate {source} tells the same", error.exit_status)
        return
    except EnvironmentFailure as error:
        remedy = "fetch the data, or name other data in params" if check == "data" else ""
        yield _wrong(check, str(error), remedy, error.exit_status)
        return
    with tempfile.TemporaryDirectory(prefix="tuner-doctor-") as folder:
        yield from _trial(load_experiment(source, [*overrides, *_AS_A_TEST]), plan, folder, storage)


def _fine(check: str, found: str) -> Finding:
    return Finding("ok", check, found)


def _wrong(check: str, found: str, remedy: str, status: int) -> Finding:
    return Finding("error", check, found, remedy, status)


def _data(plan: Plan) -> Finding:
    """What the trainable's ``prepare`` says. Raises EnvironmentFailure if the data cannot be had."""
    if not callable(getattr(plan.trainable.module, "prepare", None)):
        return _fine("data", f"not checked: the module of {plan.spec.trainable} has no prepare(config)")
    begun = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            plan.prepare()
        except OSError as error:
            raise EnvironmentFailure(f"{plan.spec.trainable}: prepare: {error}") from error
        except Exception as error:  # noqa: BLE001 - the user's own prepare may raise anything: a finding names it
            raise InputError(f"{plan.spec.trainable}: prepare: {type(error).__name__}: {error}") from None
    notices = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    if notices:
        return Finding("warning", "data", "; ".join(notices), "a search would continue so: mend params if unwanted")
    return _fine("data", f"prepared in {format_duration(time.monotonic() - begun)}")


def _tracking(plan: Plan, storage: str) -> Finding:
    """Whether what the experiment is tracked by can be reached. Raises as `check_reachable` does."""
    notices: list[str] = []
    check_reachable(plan.spec.tracking, RunFolder.at(storage), plan.experiment.roots, notices.append)
    if notices:
        return Finding("warning", "tracking", "; ".join(n.removeprefix("NOTICE: ") for n in notices))
    return _fine("tracking", "can be reached")


def _notify(options: Notify, name: str) -> Finding:
    """Whether a test message is taken. Raises EnvironmentFailure if it is not."""
    try:
        Delivery(options, lambda text: None).try_out(name)
    except InputError as error:  # validate does not tell: the search may start on another machine
        raise EnvironmentFailure(str(error)) from None
    return _fine("notify", "a test message was taken")


@dataclass
class _Watch:
    """A listener that keeps the results, and the time until the first report."""

    results: ResultSet | None = None
    begun: float = 0.0
    first_s: float | None = None

    def started(self, results: ResultSet) -> None:
        self.results, self.begun = results, time.monotonic()

    def reported(self, trial: Trial, report: Report) -> None:
        if self.first_s is None:
            self.first_s = time.monotonic() - self.begun

    def retried(self, trial: Trial, failure: Failure) -> None: ...
    def ended(self, trial: Trial) -> None: ...
    def tick(self) -> None: ...
    def finished(self, results: ResultSet) -> None: ...


def _trial(experiment: Experiment, plan: Plan, folder: str, storage: str) -> Iterator[Finding]:
    """Runs a trial of three steps in ``folder``."""
    watch = _Watch()
    try:
        with output_to(Path(folder, "said.log")):  # Ray's own lines
            run(experiment, name="doctor", storage=folder, listeners=[watch], say=lambda text: None)
    except Interrupted:
        raise Interrupted("interrupted in the trial; nothing is left behind") from None
    except EnvironmentFailure as error:
        yield _wrong("trial", str(error), "see the checks of the machine above", error.exit_status)
        return
    except TunerError as error:
        yield _failed(watch.results, str(error))
        return
    assert watch.results is not None
    trial = watch.results.trials[0]
    if trial.status == "failed":  # it reported before: to a search that is a result
        yield _failed(watch.results, trial.reason)
        return
    yield _course(plan, trial, watch.first_s or 0.0)
    names = trial.reports[0].metrics
    for name, key in plan.spec.required_metrics:
        if name != "training_iteration" and name not in names:
            found = f"{key}: the trainable reports no {name!r}; it reports: {', '.join(sorted(names))}"
            yield _wrong("metrics", found, "report it, or name another in the experiment", InputError.exit_status)
    yield _checkpoints(plan, watch.results, trial, storage)


def _failed(results: ResultSet | None, error: str) -> Finding:
    trial = results.trials[0] if results and results.trials else None
    if results is None or trial is None:
        return _wrong("trial", error, "", InputError.exit_status)
    if not trial.reason.startswith("budget.wall_clock"):
        log = Path(results.folder.path, RAY, trial.id, TRIAL_LOG)
        lines = log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:] if log.is_file() else []
        remedy = "its output ended with:" + "".join(f"\n    {line}" for line in lines) if lines else ""
        return _wrong("trial", trial.reason or error, remedy, InputError.exit_status)
    remedy = "have the trainable report more often: nothing can be stopped, saved or compared before its first report"
    return Finding("warning", "trial", f"no report within {format_duration(LIMIT_S)}", remedy)


def _course(plan: Plan, trial: Trial, first_s: float) -> Finding:
    times = [report.seconds for report in trial.reports]
    steps = [f"{after - before:.2f}" for before, after in zip([0.0, *times], times, strict=False)]
    found = (
        f"{counted(len(steps), 'report')}; Ray and the first after {format_duration(first_s)}; "
        f"seconds a step: {', '.join(steps)}"
    )
    if trial.status == "stopped":
        remedy = f"a search of {plan.trials} trials takes that many times as long"
        return Finding("warning", "trial", f"{found}; ended after {format_duration(LIMIT_S)}", remedy)
    return _fine("trial", found)


def _checkpoints(plan: Plan, results: ResultSet, trial: Trial, storage: str) -> Finding:
    """The size of one, and of all that the search may hold at once."""
    kept = trial.best.checkpoint if trial.best else None
    if kept is None:
        remedy = "pass checkpoint= to ray.tune.report: without one nothing can be restored, paused or resumed"
        return Finding("warning", "checkpoint", "none was reported", remedy)
    one = size_of(results.folder / kept)
    found = f"{format_bytes(one)}; at most {plan.checkpoints} on disk: {format_bytes(one * plan.checkpoints)}"
    target = RunFolder.at(storage)
    if target.is_local and disk(target, needed=one * plan.checkpoints + DISK_ERROR).level == "error":
        remedy = "lower checkpoints.keep_trials, make room, or choose another folder with --storage"
        return _wrong("checkpoint", f"{found}, more than there is room for", remedy, EnvironmentFailure.exit_status)
    return _fine("checkpoint", found)
