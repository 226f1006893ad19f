"""Runs a search: ``Plan`` → Ray Tune → ``ResultSet``."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tuner.actions.shared_resources import with_measured_shares
from tuner.errors import (
    EnvironmentFailure,
    InputError,
    Interrupted,
    NoUsableResult,
    RayLost,
    TunerError,
    blaming,
)
from tuner.execution.crash import in_one_line
from tuner.execution.session import cluster_at, ray_log, ray_up
from tuner.experiment.reader import Experiment, load_experiment
from tuner.experiment.spec import check_name
from tuner.plan.cluster import format_resources
from tuner.plan.plan import Plan
from tuner.plan.planner import make_plan
from tuner.runs.feasibility import no_winner
from tuner.runs.journal import JournalWriter
from tuner.runs.loading import run_exists
from tuner.runs.provenance import provenance, resolved_spec, write_experiment
from tuner.runs.results import (
    RAY,
    TRIAL_LOG,
    ResultSet,
    how_to_resume,
    new_run_name,
)
from tuner.search.earlier_trials import EarlierTrial, store, with_earlier_trials
from tuner.spec.configuration import merge
from tuner.spec.quantities import counted
from tuner.spec.user_imports import innermost
from tuner.storage.folder import STORAGE, RunFolder
from tuner.storage.lock import Lock, locked
from tuner.tracking import check_notify, check_reachable
from tuner.tracking.process import TrackingProcess
from tuner.visualization.html import write_report

if TYPE_CHECKING:
    from tuner.execution.recorder import Listener, Recorder
    from tuner.execution.trial_context import TrialContext
    from tuner.search.control import SearchControl
    from tuner.search.recovery import RecoveredSearch

Say = Callable[[str], None]


def run(
    experiment: str | Path | Mapping[str, Any] | Experiment,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    *,
    name: str | None = None,
    storage: str | Path = STORAGE,
    address: str | None = None,
    listeners: Sequence[Listener] = (),
    say: Say = lambda text: print(text, file=sys.stderr),
) -> ResultSet:
    """Searches, and returns everything that was found. `tuner.Search.run` does the same for a search in Python.

    Args:
        experiment: An experiment file, the name of a shipped one, a mapping of the same form, or one already loaded.
        overrides: What replaces keys of it, as ``--set`` does: ``{"budget.trials": 6}`` or ``["budget.trials=6"]``.
        name: Of the run folder; None: the experiment's name with the time.
        storage: The folder or URI that gets the run folder.
        address: Of a running Ray cluster, ``host:port`` or ``auto``; None: this machine.
        listeners: Callbacks that follow the search.
        say: Gets each line that the user must know at once; by default it goes to stderr.

    Returns:
        The results: all trials, and the run folder that holds them.

    Raises:
        InputError: The experiment cannot be run as it is, or ``name`` is taken.
        EnvironmentFailure: The data, a tracker, the storage or the cluster cannot be used.
        NoUsableResult: No trial has a result.
        Interrupted: Ctrl-C, or a signal; the run folder is complete, and `resume` continues.
        Crashed: Something that nobody foresaw; the run folder is complete.

    Example:
        >>> import tuner
        >>> results = tuner.run("quickstart", {"budget.trials": 2}, name="q")
        >>> len(results.trials), results.folder.location
        (2, 'runs/q')
    """
    loaded = _loaded(experiment, overrides)
    with contextlib.closing(TrackingProcess(say)) as tracking, cluster_at(address) as cluster:
        if loaded.spec.is_followed:
            tracking.start(loaded.spec.tracking)
        plan, earlier = with_earlier_trials(make_plan(loaded, cluster))
        folder = free_folder(storage, run_name(name, plan.spec.name))
        check_reachable(plan.spec.tracking, folder.parent, loaded.roots, say)
        check_notify(plan.spec.notify)
        with folder.created():
            plan, params, notices = prepare(plan, folder, Path.cwd(), say)
        with locked(folder) as lock, in_one_line(folder, lock):
            followers = [tracking] if loaded.spec.is_followed else []
            return begin(plan, params, folder, lock, say, notices, earlier, [*listeners, *followers])


def free_folder(storage: str | Path, name: str) -> RunFolder:
    """The folder of a new run. Raises InputError if there is one of that ``name``."""
    folder = RunFolder.at(storage) / name
    if run_exists(folder):
        raise InputError(f"--name {folder.location!r} is taken: a run is never overwritten; choose another name")
    return folder


def begin(
    plan: Plan,
    params: dict[str, Any],
    folder: RunFolder,
    lock: Lock,
    say: Say,
    notices: Sequence[str] = (),
    earlier: Sequence[EarlierTrial] = (),
    listeners: Sequence[Listener] = (),
) -> ResultSet:
    """Searches into ``folder``, which exists and is held with ``lock``. ``params`` are those of `prepare`."""
    from tuner.execution.fit import task_of
    from tuner.search.control import SearchControl

    recovered = record_start(plan, params, notices, folder, earlier)
    return search(plan, task_of(plan, params, Path.cwd()), recovered, SearchControl(), listeners, say, lock)


def record_start(
    plan: Plan, params: dict[str, Any], notices: Sequence[str], folder: RunFolder, earlier: Sequence[EarlierTrial]
) -> RecoveredSearch:
    """Writes the first event and the files of a new run: a search that has seen nothing but ``earlier``."""
    from tuner.search.new_state import new_state
    from tuner.search.recovery import RecoveredSearch
    from tuner.search.usage import usage_of

    spec = resolved_spec(plan, params)
    results = ResultSet(folder, spec, provenance(plan, params, notices))
    for pickled in plan.experiment.pickles:
        pickled.write(folder)
    store(folder, earlier)
    journal = JournalWriter(folder)
    journal.append("began", spec=results.spec, provenance=results.provenance)
    journal.close()
    write_experiment(results)
    results.save()
    return RecoveredSearch(results, new_state(plan, earlier), usage_of(results), 0.0)


def run_name(name: str | None, experiment: str) -> str:
    """``name``, or else that of the experiment with the time. Raises InputError if it can name no folder."""
    return new_run_name(experiment) if name is None else checked_name(name, "--name")


def checked_name(name: str, given: str) -> str:
    """``name``; ``given`` says where it comes from. Raises InputError if it can name no folder."""
    try:
        return check_name(name)
    except ValueError as error:
        raise InputError(f"{given}: {error}") from None


def validate(
    experiment: str | Path | Mapping[str, Any] | Experiment,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    *,
    address: str | None = None,
) -> Plan:
    """The plan of a search. Nothing is started, nor Ray, unless ``address`` names a cluster.

    Args:
        experiment: As of `run`.
        overrides: As of `run`.
        address: As of `run`.

    Returns:
        The plan: trials, resources, rungs, notices.

    Raises:
        InputError: The experiment cannot be run as it is; it holds every problem, each with its line.
        EnvironmentFailure: No cluster answers at ``address``.

    Example:
        >>> import tuner
        >>> tuner.validate("quickstart", {"budget.trials": 6}).trials
        6
    """
    loaded = _loaded(experiment, overrides)
    with cluster_at(address) as cluster:
        return with_earlier_trials(make_plan(loaded, cluster))[0]


def _loaded(
    experiment: str | Path | Mapping[str, Any] | Experiment, overrides: Mapping[str, Any] | Sequence[str]
) -> Experiment:
    return experiment if isinstance(experiment, Experiment) else load_experiment(experiment, overrides)


def prepare(plan: Plan, folder: RunFolder, working_directory: Path, say: Say) -> tuple[Plan, dict[str, Any], list[str]]:
    """The plan with its shares measured, its fixed parameters with what ``prepare`` replaces, and what to note of both.

    ``working_directory``: that of the trials.

    Raises EnvironmentFailure if the data cannot be had, or where not all nodes see ``folder``.
    """
    if plan.cluster.address is not None:
        from tuner.execution.storage_check import check_shared

        check_shared(folder)
    if plan.cluster.autoscaler and len(plan.cluster.nodes) == 1 and folder.is_local:
        unseen = "it cannot be tried on the nodes that the autoscaler is yet to start"
        say(f"NOTICE: all nodes must see storage {folder.parent.location!r}: {unseen}")

    for note in plan.notes:
        say(f"NOTICE: {note}")
    params = plan.spec.params
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            prepared = plan.prepare()
        except OSError as error:
            raise EnvironmentFailure(f"{plan.spec.trainable}: prepare: {error}") from error
        except Exception as error:
            raise InputError(f"{plan.spec.trainable}: prepare: {innermost(error)}") from error
    notices = plan.notices + [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    params = merge(params, prepared)
    plan, shares = with_measured_shares(plan, params, working_directory, say)
    for notice in (notices := notices + shares):
        say(f"NOTICE: {notice}")
    return plan, params, notices


def search(
    plan: Plan,
    task: TrialContext,
    recovered: RecoveredSearch,
    control: SearchControl,
    listeners: Sequence[Listener],
    say: Say,
    lock: Lock,
) -> ResultSet:
    """Searches on, from what ``recovered`` holds to the end. Raises as `run` does."""
    from tuner.execution.fit import fit
    from tuner.execution.recorder import Recorder

    results = recovered.results
    control.say = say
    control.storage_patience = plan.spec.failures.storage_patience
    if plan.waits_for:
        need = format_resources(plan.request)
        say(f"NOTICE: no node has room for a trial ({need}): waiting for the autoscaler to start {plan.waits_for}")
    journal = JournalWriter(results.folder, lock)
    told = [_named(listener) for listener in listeners]
    recorder = Recorder(recovered, journal, plan.spec.scheduler, plan.spec.checkpoints, control, told)

    def died(process: str) -> None:
        go_on = how_to_resume(results.folder)
        control.give_up(RayLost(f"Ray's process {process} died; to continue the search: {go_on}"))

    def stuck() -> None:
        say(f"error: {control.fatal}")
        os._exit(RayLost.exit_status)  # the journal has all: only the tables are behind

    try:
        with in_one_line(results.folder, lock):
            for listener in told:
                listener.started(results)
            recorder.begin()
            with ray_log(results.folder, lock) as attach, control.on_interrupt(say), ray_up(plan, died, stuck, say):
                attach()
                with control.on_interrupt(say):  # again, as Ray's start puts its own handlers in place
                    fit(plan, task, recorder, control)
                    control.returned = True
    except KeyboardInterrupt:
        control.interrupted = True
    except TunerError as error:
        control.fatal = control.fatal or error
    finally:  # also where a library calls sys.exit
        _leave(recorder, results, control, told, lock)
    return _outcome(results, control, say)


def _leave(
    recorder: Recorder, results: ResultSet, control: SearchControl, listeners: list[Listener], lock: Lock
) -> None:
    """Completes the run folder, however the search ended; of several errors the first one counts."""

    def attempt(step: Callable[[], None]) -> None:
        try:
            with in_one_line(results.folder, lock):
                step()
        except TunerError as error:
            control.fatal = control.fatal or error

    def stored(step: Callable[[], None]) -> None:
        with control.storing(results.folder):
            step()

    for step in (recorder.finish, recorder.close):
        try:
            attempt(functools.partial(stored, step))
        except KeyboardInterrupt:  # the journal has all that could be written
            control.interrupted = True
    with contextlib.suppress(KeyboardInterrupt):  # the search is over, and `report` writes its page again
        attempt(functools.partial(stored, lambda: _write_page(results, control.say)))
    for listener in listeners:
        attempt(functools.partial(listener.finished, results))


def _outcome(results: ResultSet, control: SearchControl, say: Say) -> ResultSet:
    """``results``, where the search came to its end with one. Raises as `run` does."""
    resume = how_to_resume(results.folder)
    if control.fatal:
        ended = results.provenance.get("interrupted") is False
        if not ended and not isinstance(control.fatal, InputError) and resume not in str(control.fatal):
            say(f"the run is interrupted; to continue it: {resume}")
        raise _with(control.fatal, results)
    if control.interrupted:
        over = len(results.trials) - results.count("paused") - results.count("pending")
        told = f"interrupted: {counted(over, 'trial')} ended, {results.count('paused')} paused; to continue: {resume}"
        raise _with(Interrupted(told), results)
    if results.best is None:
        raise _with(NoUsableResult(": ".join(filter(None, [control.stop_reason, _why_nothing(results)]))), results)
    return results


def _with(error: TunerError, results: ResultSet) -> TunerError:
    """``error``, which says what was found until then."""
    error.results = results
    return error


def _write_page(results: ResultSet, say: Say) -> None:
    """Writes the report; a notice where that fails, as the search is over and `report` writes it again."""
    try:
        write_report(results)
    except OSError as error:
        reason = " ".join(str(error).split())
        say(f"NOTICE: its page is not written: {reason}; to write it: python -m tuner report {results.folder.quoted}")


class _Named:
    """A listener of the user's, which is named where it raises."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def __getattr__(self, name: str) -> Any:
        return blaming(f"listener {type(self._listener).__qualname__}")(getattr(self._listener, name))


def _named(listener: Listener) -> Listener:
    ours = type(listener).__module__.startswith("tuner.")
    return listener if ours else cast("Listener", _Named(listener))


def _why_nothing(results: ResultSet) -> str:
    if reason := no_winner(results):
        return f"{reason}; see {results.folder.location}"
    reasons = Counter(trial.reason for trial in results.trials if trial.status == "failed")
    if not reasons:
        return f"no trial reported anything before the search ended; see {results.folder.location}"
    reason, count = reasons.most_common(1)[0]
    example = next(t for t in results.trials if t.reason == reason)
    log = f"{results.folder.location}/{RAY}/{example.id}/{TRIAL_LOG}"
    return f"all {results.count('failed')} trials failed; {count} of them with: {reason} (log: {log})"
