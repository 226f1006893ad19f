"""Searches taken up again: the verbs that continue a run, make it longer, or run its failed trials again."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.actions.extend import extension, failed_trials, requested, resumable_trials, retried
from tuner.actions.run import Say, prepare, search
from tuner.errors import InputError
from tuner.execution.crash import in_one_line
from tuner.execution.session import cluster_at
from tuner.experiment.reader import Experiment, load_experiment
from tuner.plan.plan import Plan
from tuner.plan.planner import make_plan
from tuner.runs.journal import JournalWriter
from tuner.runs.loading import find_run, load_summary
from tuner.runs.provenance import pickles_of, resolved_spec, roots, write_experiment
from tuner.runs.results import ResultSet
from tuner.search.earlier_trials import read_stored
from tuner.spec.quantities import counted
from tuner.storage.folder import STORAGE
from tuner.storage.lock import Lock, locked
from tuner.storage.pickled import Pickled, is_pickled
from tuner.tracking.process import TrackingProcess
from tuner.trainable.trainable import pickle_function

if TYPE_CHECKING:
    from tuner.execution.recorder import Listener
    from tuner.plan.cluster import Cluster
    from tuner.search.recovery import RecoveredSearch, StoredSearch


def resume(
    run: str | Path | ResultSet,
    *,
    storage: str = STORAGE,
    address: str | None = None,
    trust: bool = False,
    trainable: Callable[..., Any] | None = None,
    project: str | Path | None = None,
    listeners: Sequence[Listener] = (),
    say: Say = lambda text: print(text, file=sys.stderr),
) -> ResultSet:
    """Continues a search that did not come to its end, whatever ended it: Ctrl-C, kill -9, a power cut.

    Ended trials stay, started ones continue from their last checkpoint, then come those not yet started. Searcher and
    scheduler continue with all that they had seen; the time between does not count.

    Args:
        run: Name or folder of the run, or its results.
        storage: The folder or URI in which the name is looked up.
        address: Of a running Ray cluster; None: this machine.
        trust: Whether Python objects in the run folder are opened that another user or machine wrote.
        trainable: The function again, in place of the one that was pickled into the run folder.
        project: The folder of the code now, in place of the working directory that the search began in.
        listeners: Callbacks that follow the search.
        say: Gets each line that the user must know at once; by default it goes to stderr.

    Returns:
        The results of the whole search.

    Raises:
        InputError: There is no such run, or nothing is left to do.
        EnvironmentFailure: The data, a tracker, the storage or the cluster cannot be used.
        NoUsableResult: No trial has a result.
        Interrupted: Ctrl-C, or a signal; the run folder is complete, and `resume` continues.
        Crashed: Something that nobody foresaw; the run folder is complete.

    Example:
        >>> import tuner
        >>> try:
        ...     tuner.resume("runs/q")
        ... except tuner.errors.InputError as error:
        ...     print(error)
        runs/q: nothing to resume: the search came to its end
    """
    with _reopen(run, storage, address, trust, trainable, listeners, say) as found:
        if project is not None:
            relocate(found.known, Path(project))
        if found.known.provenance.get("interrupted") is False:
            raise InputError(f"{found.known.folder.location}: nothing to resume: the search came to its end")
        return _resumed(found)


def extend(
    run: str | Path | ResultSet,
    *,
    trials: str | int | None = None,
    max_t: str | int | None = None,
    wall_clock: str | float | None = None,
    overrides: Sequence[str] = (),
    storage: str = STORAGE,
    address: str | None = None,
    trust: bool = False,
    trainable: Callable[..., Any] | None = None,
    listeners: Sequence[Listener] = (),
    say: Say = lambda text: print(text, file=sys.stderr),
) -> ResultSet:
    """Makes a search longer that has come to its end, or was interrupted.

    The searcher keeps all it has learned. Trials that were complete at the old ``max_t``, or that the old budget ended,
    continue from their checkpoints if those were kept and the scheduler lets them: its rungs reach up to the new
    ``max_t``. Until the longer search has come to its end, the same request again continues it, as `resume` does.

    Args:
        run: Name or folder of the run, or its results.
        trials: Number of configurations: a new total, or ``+20`` for 20 more.
        max_t: The scheduler's ``max_t``: a new value, or ``+20``.
        wall_clock: The limit on time: a new value in seconds or as ``2h``, or ``+1h``.
        overrides: What replaces other keys, such as the trainable's own number of epochs: ``["params.epochs=50"]``. If
            they change ``search_space``, ``constraints`` or ``search``, a new searcher learns from the trials that lie
            in the new space.
        storage: The folder or URI in which the name is looked up.
        address: Of a running Ray cluster; None: this machine.
        trust: Whether Python objects in the run folder are opened that another user or machine wrote.
        trainable: The function again, in place of the one that was pickled into the run folder.
        listeners: Callbacks that follow the search.
        say: Gets each line that the user must know at once; by default it goes to stderr.

    Returns:
        The results of the whole search.

    Raises:
        InputError: There is no such run, or nothing becomes longer.
        EnvironmentFailure: The data, a tracker, the storage or the cluster cannot be used.
        NoUsableResult: No trial has a result.
        Interrupted: Ctrl-C, or a signal; the run folder is complete, and `resume` continues.
        Crashed: Something that nobody foresaw; the run folder is complete.

    Example:
        >>> import tuner
        >>> longer = tuner.extend("runs/q", trials="+1")
        >>> len(longer.trials)
        3
    """
    request = requested(trials, max_t, wall_clock, overrides)
    with _reopen(run, storage, address, trust, trainable, listeners, say) as found:
        if found.stock.request == request:
            return _asked_again(found)
        known = found.known
        changes = [*extension(known, trials, max_t, wall_clock), *overrides]
        if not changes:
            raise InputError(f"{known.folder.location}: nothing becomes longer: give --trials, --max-t or --wall-clock")
        continued = resumable_trials(known, max_t is not None, any(text.startswith("params.") for text in changes))
        steps = {trial.id: trial.steps for trial in known.trials if trial.id in continued}
        results = _changed(found, request, continued, found.experiment(changes))
        if max_t is not None and steps and all(t.steps == steps[t.id] for t in results.trials if t.id in steps):
            say(
                f"NOTICE: the trainable ended {counted(len(steps), 'continued trial')} without another report: it may "
                "count its own epochs; give it more with extend --set params.NAME=N"
            )
        return results


def retry(
    run: str | Path | ResultSet,
    *,
    trials: Sequence[str] = (),
    storage: str = STORAGE,
    address: str | None = None,
    trust: bool = False,
    trainable: Callable[..., Any] | None = None,
    listeners: Sequence[Listener] = (),
    say: Say = lambda text: print(text, file=sys.stderr),
) -> ResultSet:
    """Runs the failed trials of a search again, from their checkpoints where those were kept.

    Once more it continues the search, as `resume` does, as long as that has not come to its end.

    Args:
        run: Name or folder of the run, or its results.
        trials: Ids or numbers of some of them; by default all.
        storage: The folder or URI in which the name is looked up.
        address: Of a running Ray cluster; None: this machine.
        trust: Whether Python objects in the run folder are opened that another user or machine wrote.
        trainable: The function again, in place of the one that was pickled into the run folder.
        listeners: Callbacks that follow the search.
        say: Gets each line that the user must know at once; by default it goes to stderr.

    Returns:
        The results of the whole search.

    Raises:
        InputError: There is no such run, no trial failed, or one of ``trials`` did not.
        EnvironmentFailure: The data, a tracker, the storage or the cluster cannot be used.
        NoUsableResult: No trial has a result.
        Interrupted: Ctrl-C, or a signal; the run folder is complete, and `resume` continues.
        Crashed: Something that nobody foresaw; the run folder is complete.

    Example:
        >>> import tuner
        >>> try:
        ...     tuner.retry("runs/q")
        ... except tuner.errors.InputError as error:
        ...     print(error)
        runs/q: ...
    """
    request = retried(trials)
    with _reopen(run, storage, address, trust, trainable, listeners, say) as found:
        if found.stock.request == request:
            return _asked_again(found)
        return _changed(found, request, failed_trials(found.known, trials), found.experiment())


def relocate(results: ResultSet, project: Path) -> None:
    """Takes ``project`` for the working directory of the run from now on. Raises InputError if it is not a folder."""
    project = project.resolve()
    if not project.is_dir():
        raise InputError(f"--project {project}: there is no such folder")
    before = Path(results.provenance["working_directory"])
    moved = [project / root.relative_to(before) if root.is_relative_to(before) else root for root in roots(results)]
    results.provenance |= {"working_directory": str(project), "roots": list(map(str, moved))}


@dataclass(frozen=True)
class _ReopenedRun:
    """A run that no other process works on, and what its search continues with."""

    stock: StoredSearch
    pickles: tuple[Pickled, ...]
    cluster: Cluster
    lock: Lock
    listeners: Sequence[Listener]
    say: Say

    @property
    def known(self) -> ResultSet:
        """What is known of the run."""
        return self.stock.results

    @property
    def working_directory(self) -> Path:
        """That of its trials."""
        return Path(self.known.provenance["working_directory"])

    def experiment(self, changes: Sequence[str] = ()) -> Experiment:
        """Its own experiment, with ``changes``."""
        return load_experiment(self.known.spec, changes, roots(self.known), self.pickles)


@contextlib.contextmanager
def _reopen(
    run: str | Path | ResultSet,
    storage: str,
    address: str | None,
    trust: bool,
    trainable: Callable[..., Any] | None,
    listeners: Sequence[Listener],
    say: Say,
) -> Iterator[_ReopenedRun]:
    """Within: no other process works on ``run``, and the cluster is connected to."""
    from tuner.search.recovery import read_stored_search

    folder = run.folder if isinstance(run, ResultSet) else find_run(run, storage)
    with locked(folder) as lock, cluster_at(address) as cluster, in_one_line(folder, lock):
        stock = read_stored_search(load_summary(folder), trust)
        if trainable is not None:
            replace_pickled(stock.results, trainable)
        yield _ReopenedRun(stock, pickles_of(stock.results, trust), cluster, lock, listeners, say)


def replace_pickled(results: ResultSet, trainable: Callable[..., Any]) -> None:
    """Writes ``trainable`` into the run folder, in place of the function that was pickled there.

    Raises InputError if the run names its trainable in another way.
    """
    reference = results.spec.get("trainable", "")
    if not is_pickled(reference):
        raise InputError(f"trainable: {results.folder.location} names {reference}, which is imported: leave it out")
    pickle_function(trainable, reference.rpartition(":")[0]).write(results.folder)


def _resumed(run: _ReopenedRun) -> ResultSet:
    """Continues the run with its own experiment."""
    plan = make_plan(run.experiment(), run.cluster)
    plan, params, _ = prepare(plan, run.known.folder, run.working_directory, run.say)
    return _continued(run, plan, params)


def _asked_again(run: _ReopenedRun) -> ResultSet:
    """Continues the run, which has what is asked for already."""
    again = f"`{run.stock.request}` was given before, and the search has not come to its end since"
    run.say(f"NOTICE: {run.known.folder.location}: {again}: it continues, and nothing is added once more")
    return _resumed(run)


def _changed(run: _ReopenedRun, request: str, trials: Sequence[str], experiment: Experiment) -> ResultSet:
    """Continues the run with ``experiment`` in place of its own, and with ``trials`` that had ended.

    One event of the journal is the whole change: after a kill `StoredSearch.request` tells whether it was made.
    """
    known = run.known
    if experiment.spec.search.from_runs != tuple(known.section("search").get("from_runs", ())):
        message = "cannot change in a search that has begun; start a new one, which may learn from this one too"
        raise InputError([experiment.problem(("search", "from_runs"), message)])
    plan = make_plan(experiment, run.cluster)
    plan, params, _ = prepare(plan, known.folder, run.working_directory, run.say)
    spec = resolved_spec(plan, params)
    _check_change(known, plan, spec)
    known.spec = spec
    journal = JournalWriter(known.folder)
    change = {"spec": known.spec, "request": request, "reopened": list(trials)}
    journal.append("extended", **change)
    journal.close()
    run.stock.extended({"what": "extended", **change, "n": journal.number})
    return _continued(run, plan, params, anew=True)


def _check_change(known: ResultSet, plan: Plan, changed: dict[str, Any]) -> None:
    """Raises InputError if ``changed``, the new experiment, has another search, and that makes no sense."""
    from tuner.search.recovery import SEARCH_KEYS

    key = next((key for key in SEARCH_KEYS if changed.get(key) != known.spec.get(key)), None)
    if key is None:
        return
    problem, started = "", counted(plan.trials, "trial")
    if plan.spec.scheduler.changes_configurations and key != "search":
        kind = plan.spec.scheduler.kind
        problem = f"cannot change under scheduler {kind}, whose trials take over configurations: start a new search"
    elif plan.spec.search.from_runs and key != "search":
        problem = "cannot change in a search that has from_runs: start a new one, which may learn from this one too"
    elif plan.trials <= known.suggested:
        problem = f"changes nothing, as all of the {started} have started: add some (--trials +10)"
    if problem:
        raise InputError([plan.experiment.problem((key,), problem)])


def _continued(run: _ReopenedRun, plan: Plan, params: dict[str, Any], anew: bool = False) -> ResultSet:
    """Continues what is left of a search, from its journal."""
    from tuner.execution.fit import task_of
    from tuner.search.control import SearchControl
    from tuner.search.new_state import new_state
    from tuner.search.recovery import recover

    known = run.known
    made_for = replace(plan, trials=run.stock.planned or plan.trials)
    recovered = recover(run.stock, lambda: new_state(made_for, read_stored(known.folder, plan), run.stock.drawn), anew)
    known.provenance |= {"interrupted": None, "interrupted_by": "", "trials": plan.trials + known.added}
    known.provenance = {"seed": plan.seed, "slots": plan.slots} | known.provenance  # which a damaged file may lack
    write_experiment(known)  # one of its files may have been damaged, or be behind the journal
    for notice in [*recovered.notices, *_ordered(recovered)]:
        run.say(f"NOTICE: {notice}")
    control = SearchControl(elapsed_before=recovered.elapsed)
    task = task_of(plan, params, run.working_directory)
    followers = [TrackingProcess(run.say)] if plan.spec.is_followed else []
    return search(plan, task, recovered, control, [*run.listeners, *followers], run.say, run.lock)


def _ordered(recovered: RecoveredSearch) -> Iterator[str]:
    """What people have ordered that keeps trials from running."""
    orders, folder = recovered.state.orders, recovered.results.folder
    control = f"python -m tuner control {folder.quoted}"
    if orders.paused:
        by = next((command.by for command in reversed(recovered.results.commands) if command.do == "pause"), "somebody")
        yield f"{folder.location}: {by} paused the search, and it stays paused; to continue it: {control} continue"
    if orders.limit is not None:
        yield f"{folder.location}: at most {orders.limit} trials run at once; to lift that: {control} slots none"
