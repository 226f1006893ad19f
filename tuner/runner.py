"""Runs a search: ``Plan`` → Ray Tune → ``ResultSet``. The verbs that start or take up one."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.configuration import merge
from tuner.engine.session import cluster_at, ray_log, ray_up
from tuner.errors import EnvironmentFailure, InputError, Interrupted, NoUsableResult, RayLost
from tuner.extension import extension, survivors
from tuner.journal import JournalWriter
from tuner.loading import begun, find_run, last_known
from tuner.lock import Lock, locked
from tuner.machine import describe
from tuner.plan import Plan, make_plan
from tuner.provenance import provenance, resolved_spec
from tuner.report.html import write_report
from tuner.results import EXPERIMENT, PROVENANCE, RAY, TRIAL_LOG, ResultSet, how_to_resume, new_run_name, write_json
from tuner.spec.document import dump_yaml
from tuner.spec.experiment import check_name
from tuner.spec.reader import Experiment, load_experiment
from tuner.storage import STORAGE, RunFolder
from tuner.tracking import check_reachable
from tuner.tracking.process import TrackingProcess

if TYPE_CHECKING:
    from tuner.engine.control import Control
    from tuner.engine.recorder import Listener
    from tuner.engine.recovery import Recovered
    from tuner.engine.task import TrialTask
    from tuner.machine import Cluster

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
    """Searches, and returns everything that was found.

    ``experiment``: a YAML file, a mapping of the same form, or an experiment already loaded. ``overrides``: as of
    ``--set``, ``{"budget.trials": 6}``. ``name``: of the run folder below ``storage``. ``address``: a running Ray
    cluster; this machine without it. ``say`` is called with what the user must know at once.

    Raises InputError (2), EnvironmentFailure (4), NoUsableResult (3) or Interrupted (130); the last two carry on
    with a complete run folder.
    """
    loaded = experiment if isinstance(experiment, Experiment) else load_experiment(experiment, overrides)
    with contextlib.closing(TrackingProcess(say)) as tracking, cluster_at(address) as cluster:
        if loaded.spec.tracking.anywhere:
            tracking.start(loaded.spec.tracking)
        plan = make_plan(loaded, cluster)
        folder = RunFolder.at(storage) / run_name(name, plan.spec.name)
        if begun(folder):
            raise InputError(f"--name {folder.shown!r} is taken: a run is never overwritten; choose another name")
        check_reachable(plan.spec.tracking, folder.parent, say)
        with folder.created():
            params, notices = _prepare(plan, folder, say)
        with locked(folder) as lock:
            followers = [tracking] if loaded.spec.tracking.anywhere else []
            return _begin(plan, params, notices, folder, [*listeners, *followers], say, lock)


def _begin(
    plan: Plan,
    params: dict[str, Any],
    notices: list[str],
    folder: RunFolder,
    listeners: list[Listener],
    say: Say,
    lock: Lock,
) -> ResultSet:
    from tuner.engine.control import Control
    from tuner.engine.fit import new_course, task_of
    from tuner.engine.recovery import Recovered

    spec = resolved_spec(plan, params)
    results = ResultSet(folder, spec, provenance(plan, params, notices))
    journal = JournalWriter(folder)
    journal.append("began", spec=results.spec, provenance=results.provenance)
    journal.close()
    _write_experiment(results)
    results.save()
    task = task_of(plan, params, Path.cwd())
    return _search(plan, task, Recovered(results, new_course(plan), 0.0), Control(), listeners, say, lock)


def resume(
    run: str | Path | ResultSet,
    *,
    storage: str = STORAGE,
    address: str | None = None,
    project: str | Path | None = None,
    listeners: Sequence[Listener] = (),
    say: Say = lambda text: print(text, file=sys.stderr),
) -> ResultSet:
    """Goes on with a search that did not come to its end, whatever ended it: Ctrl-C, kill -9, a power cut.

    Ended trials stay, started ones go on from their last checkpoint, then come those not yet started. Searcher and
    scheduler go on with all that they had seen; the time between does not count. ``project``: where the code is now,
    in place of the working directory that the search began in. Raises as `run` does, and InputError where nothing is
    left to do.
    """
    with _taken_up(run, storage, address) as (known, cluster, lock):
        if project is not None:
            move(known, Path(project))
        if known.provenance.get("interrupted") is False:
            raise InputError(f"{known.folder.shown}: nothing to resume: the search came to its end")
        plan = make_plan(experiment_of(known), cluster)
        params, _ = _prepare(plan, known.folder, say)
        return _go_on(known, plan, params, lock, list(listeners), say)


def extend(
    run: str | Path | ResultSet,
    *,
    trials: str | int | None = None,
    max_t: str | int | None = None,
    wall_clock: str | float | None = None,
    overrides: Sequence[str] = (),
    storage: str = STORAGE,
    address: str | None = None,
    listeners: Sequence[Listener] = (),
    say: Say = lambda text: print(text, file=sys.stderr),
) -> ResultSet:
    """Makes a search longer that has come to its end, or was interrupted.

    ``trials``, ``max_t`` and ``wall_clock``: a new value, or ``+20``, ``+1h`` to be added to the old one.
    ``overrides``: of other keys, such as the trainable's own number of epochs. The searcher keeps all it has learned.
    Trials that were complete at the old ``max_t``, or that the old budget ended, go on from their checkpoints, as far
    as those were kept, if the scheduler lets them: its rungs reach up to the new ``max_t``.

    Raises InputError where nothing becomes longer, and as `run` does.
    """
    with _taken_up(run, storage, address) as (known, cluster, lock):
        changes = [*extension(known, trials, max_t, wall_clock), *overrides]
        if not changes:
            raise InputError(f"{known.folder.shown}: nothing becomes longer: give --trials, --max-t or --wall-clock")
        again = survivors(known, higher=max_t is not None)
        longer = load_experiment(known.spec, changes, roots=_roots(known))
        return _reopened(known, again, longer, cluster, lock, list(listeners), say)


def retry(
    run: str | Path | ResultSet,
    *,
    storage: str = STORAGE,
    address: str | None = None,
    listeners: Sequence[Listener] = (),
    say: Say = lambda text: print(text, file=sys.stderr),
) -> ResultSet:
    """Runs the failed trials of a search again, from their checkpoints where those were kept.

    Raises InputError where none failed, and as `run` does.
    """
    with _taken_up(run, storage, address) as (known, cluster, lock):
        failed = [trial.id for trial in known.trials if trial.status == "failed"]
        if not failed:
            raise InputError(f"{known.folder.shown}: nothing to retry: no trial failed")
        return _reopened(known, failed, experiment_of(known), cluster, lock, list(listeners), say)


@contextlib.contextmanager
def _taken_up(
    run: str | Path | ResultSet, storage: str, address: str | None
) -> Iterator[tuple[ResultSet, Cluster, Lock]]:
    """Within: no other process works on ``run``, of which this is known, and the cluster is connected to."""
    folder = run.folder if isinstance(run, ResultSet) else find_run(run, storage)
    with locked(folder) as lock, cluster_at(address) as cluster:
        yield last_known(folder), cluster, lock


def _reopened(
    known: ResultSet,
    trials: Sequence[str],
    experiment: Experiment,
    cluster: Cluster,
    lock: Lock,
    listeners: list[Listener],
    say: Say,
) -> ResultSet:
    """Takes up the run with ``experiment`` in place of its own, and with ``trials`` that had ended.

    The journal comes first: what a kill leaves half done is done again by the same command.
    """
    plan = make_plan(experiment, cluster)
    params, _ = _prepare(plan, known.folder, say)
    known.spec = resolved_spec(plan, params)
    known.provenance |= {"interrupted": True, "trials": plan.trials}
    journal = JournalWriter(known.folder)
    journal.append("extended", spec=known.spec)
    for trial_id in trials:
        journal.append("reopened", trial=trial_id)
    journal.close()
    return _go_on(known, plan, params, lock, listeners, say)


def _go_on(
    known: ResultSet, plan: Plan, params: dict[str, Any], lock: Lock, listeners: list[Listener], say: Say
) -> ResultSet:
    """Takes up what is left of a search, from its journal."""
    from tuner.engine.control import Control
    from tuner.engine.fit import new_course, task_of
    from tuner.engine.recovery import recover

    _write_experiment(known)  # one of its files may have been damaged
    recovered = recover(known, lambda: new_course(plan))
    for notice in recovered.notices:
        say(f"NOTICE: {notice}")
    control = Control(elapsed_before=recovered.elapsed)
    task = task_of(plan, params, Path(known.provenance["working_directory"]))
    followers = [TrackingProcess(say)] if plan.spec.tracking.anywhere else []
    return _search(plan, task, recovered, control, [*listeners, *followers], say, lock)


def _write_experiment(results: ResultSet) -> None:
    """experiment.yaml and provenance.json."""
    command = f"python -m tuner run {(results.folder / EXPERIMENT).word}"
    header = [f"# {command}", *(f"# {notice}" for notice in results.notices)]
    results.folder.write(EXPERIMENT, dump_yaml(results.spec, header))
    write_json(results.folder, PROVENANCE, results.provenance)


def run_name(name: str | None, experiment: str) -> str:
    """``name``, or else that of the experiment with the time. Raises InputError where it can name no folder."""
    return new_run_name(experiment) if name is None else checked_name(name, "--name")


def checked_name(name: str, given: str) -> str:
    """``name``; ``given`` says where it comes from. Raises InputError where it can name no folder."""
    try:
        return check_name(name)
    except ValueError as error:
        raise InputError(f"{given}: {error}") from None


def move(results: ResultSet, project: Path) -> None:
    """What was below the working directory of a run is below ``project`` now. Raises InputError where that is none."""
    project = project.resolve()
    if not project.is_dir():
        raise InputError(f"--project {project}: there is no such folder")
    before = Path(results.provenance["working_directory"])
    roots = [project / root.relative_to(before) if root.is_relative_to(before) else root for root in _roots(results)]
    results.provenance |= {"working_directory": str(project), "roots": list(map(str, roots))}


def experiment_of(results: ResultSet) -> Experiment:
    """The experiment that a run was started with."""
    return load_experiment(results.spec, roots=_roots(results))


def _roots(results: ResultSet) -> tuple[Path, ...]:
    return tuple(map(Path, results.provenance["roots"]))


def validate(
    experiment: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | Sequence[str] = (),
    *,
    address: str | None = None,
) -> Plan:
    """The plan of a search, without starting it (nor Ray, unless ``address`` names a cluster). Raises InputError."""
    loaded = load_experiment(experiment, overrides)
    with cluster_at(address) as cluster:
        return make_plan(loaded, cluster)


def _prepare(plan: Plan, folder: RunFolder, say: Say) -> tuple[dict[str, Any], list[str]]:
    """The fixed parameters with what the trainable's ``prepare`` replaces, and the warnings that it gave.

    Raises EnvironmentFailure where the data cannot be had, or where not all nodes see ``folder``.
    """
    import numpy as np

    if plan.cluster.address is not None:
        from tuner.engine.shared import check_shared

        check_shared(folder)
    if plan.cluster.autoscaler and len(plan.cluster.nodes) == 1 and folder.is_local:
        unseen = "it cannot be tried on the nodes that the autoscaler is yet to start"
        say(f"NOTICE: all nodes must see storage {folder.parent.shown!r}: {unseen}")

    params = plan.spec.params
    sample = plan.spec.search_space.sample(np.random.default_rng(plan.seed))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            prepared = plan.trainable.prepare(merge(params, sample))
        except OSError as error:
            raise EnvironmentFailure(f"{plan.spec.trainable}: prepare: {error}") from error
    notices = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    for notice in notices:
        say(f"NOTICE: {notice}")
    return merge(params, prepared), notices


def _search(
    plan: Plan,
    task: TrialTask,
    begun: Recovered,
    control: Control,
    listeners: list[Listener],
    say: Say,
    lock: Lock,
) -> ResultSet:
    from tuner.engine.fit import fit
    from tuner.engine.recorder import Recorder

    results = begun.results
    control.say = say
    if plan.waits_for:
        need = describe(plan.request)
        say(f"NOTICE: no node has room for a trial ({need}): waiting for the autoscaler to start {plan.waits_for}")
    journal = JournalWriter(results.folder, lock)
    recorder = Recorder(results, begun.course, journal, plan.spec.scheduler, plan.spec.checkpoints, control, listeners)
    for listener in listeners:
        listener.started(results)

    def died(process: str) -> None:
        go_on = how_to_resume(results.folder)
        control.give_up(RayLost(f"Ray's process {process} died; to go on where the search was: {go_on}"))

    def stuck() -> None:
        say(f"error: {control.fatal}")
        os._exit(RayLost.exit_status)  # the journal has all: only the tables are behind

    try:
        recorder.begin(begun.stopping)
        with ray_log(results.folder) as attach, control.on_interrupt(say), ray_up(plan, died, stuck):
            attach()
            with control.on_interrupt(say):  # again, as Ray's start puts its own handler of SIGTERM in place
                fit(plan, task, recorder, control)
    except KeyboardInterrupt:
        control.interrupted = True
    finally:
        try:
            recorder.finish()
            recorder.leave()
            with contextlib.suppress(KeyboardInterrupt):  # the search is over, and `report` writes its page again
                write_report(results)
        except KeyboardInterrupt:  # the journal has all that could be written
            control.interrupted = True
        except OSError as error:
            control.storage_lost(results.folder, error)
        for listener in listeners:
            listener.finished(results)
    if control.fatal:
        raise control.fatal
    if control.interrupted:
        ended = len(results.trials) - results.count("paused") - results.count("pending")
        raise Interrupted(
            f"interrupted: {ended} trials ended, {results.count('paused')} paused; "
            f"to go on: {how_to_resume(results.folder)}"
        )
    if results.best is None:
        raise NoUsableResult(": ".join(filter(None, [control.stop_reason, _why_nothing(results)])))
    return results


def _why_nothing(results: ResultSet) -> str:
    reasons = Counter(trial.reason for trial in results.trials if trial.status == "failed")
    if not reasons:
        return f"no trial reported anything before the search ended; see {results.folder.shown}"
    reason, count = reasons.most_common(1)[0]
    example = next(t for t in results.trials if t.reason == reason)
    log = f"{results.folder.shown}/{RAY}/{example.id}/{TRIAL_LOG}"
    return f"all {results.count('failed')} trials failed; {count} of them with: {reason} (log: {log})"
