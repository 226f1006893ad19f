"""Rebuilds a search from its run folder: from its journal, from the last snapshot, or from its result tables.

The journal is enough. The snapshot (``state.pkl``) saves the time to play it from the start, and stands in where the
journal is damaged; where both are, the tables of the run are made into events, so that the searcher learns at least
what they hold.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ray import cloudpickle

from tuner.engine.course import Course
from tuner.engine.events import events_of, knows_less
from tuner.errors import TunerError
from tuner.history import History
from tuner.journal import Event, read_journal
from tuner.results import ResultSet
from tuner.schedulers.base import Decision, Stop
from tuner.storage import RunFolder
from tuner.trial import Trial

STATE = "state.pkl"


@dataclass
class Recovered:
    """A search as it was at its last known event."""

    results: ResultSet
    course: Course
    elapsed: float
    """Seconds that it had run."""
    notices: list[str] = field(default_factory=list)
    """What the user must know of how it was recovered."""
    stopping: set[str] = field(default_factory=set)
    """Trials that were to end, and whose end is not recorded."""


class Diverged(TunerError):
    """A searcher does not suggest again what the journal says it suggested."""


def save_state(folder: RunFolder, course: Course, results: ResultSet, number: int, elapsed: float) -> None:
    """Writes the snapshot after event ``number``."""
    data = cloudpickle.dumps((number, elapsed, results.trials, course))  # a param_space may hold lambdas
    folder.write(STATE, b"%08x\n" % zlib.crc32(data) + data)


def load_state(folder: RunFolder) -> tuple[int, float, list[Trial], Course] | None:
    """None where there is none, or it is damaged."""
    try:
        checksum, _, data = folder.read(STATE).partition(b"\n")
    except FileNotFoundError:
        return None
    if checksum != b"%08x" % zlib.crc32(data):
        return None
    state: tuple[int, float, list[Trial], Course] = pickle.loads(data)
    return state


def recover(results: ResultSet, new_course: Callable[[], Course]) -> Recovered:
    """The search of the run folder of ``results``, which hold what its tables hold.

    Where the search was extended since the snapshot, all events are played: its scheduler is another one than before.
    """
    folder, journal = results.folder, read_journal(results.folder)
    notices = [f"{folder.shown}: the journal: {journal.damage}; going on from what is left"] * bool(journal.damage)
    state = load_state(folder)
    if state is not None and not _extended(journal.events[state[0] :]):
        number, elapsed, trials, course = state
        if journal.damage or number <= len(journal.events):
            fresh = ResultSet(folder, results.spec, results.provenance, trials)
            return _played(journal.events[number:], fresh, course, elapsed, notices)
    events = journal.events
    if knows_less(events, results):
        events = (*events_of(results), *(event for event in events if event["what"] == "reopened"))
        notices.append(f"{folder.shown}: recovered from its tables: what the search had decided is decided anew")
    empty = ResultSet(folder, results.spec, results.provenance)
    try:
        return _played(events, empty, new_course(), 0.0, notices)
    except Diverged as divergence:
        notices.append(f"{folder.shown}: {divergence}; it learns from all trials, and goes on with other draws")
        empty = ResultSet(folder, results.spec, results.provenance)
        return _played(events, empty, new_course(), 0.0, notices, adopt=True)


def _extended(events: Iterable[Event]) -> bool:
    return any(event["what"] == "extended" for event in events)


def _played(
    events: Iterable[Event],
    results: ResultSet,
    course: Course,
    elapsed: float,
    notices: list[str],
    adopt: bool = False,
) -> Recovered:
    """``results`` and ``course`` after ``events``."""
    history, past, stopping = History(results), list(events), set[str]()
    again = _superseded(past)
    for index, event in enumerate(past):
        elapsed = event.get("elapsed", elapsed)
        trial_id = event.get("trial", "")
        match event["what"]:
            case "suggested":
                config = event["config"]
                if adopt:
                    course.searcher.adopt(trial_id, config)
                elif (suggested := course.suggest(trial_id)) != config:
                    raise Diverged(f"trial {trial_id} was {config}, and the search now suggests {suggested}")
                course.add(trial_id, config)
            case "reported":
                decision = course.report(trial_id, event["step"], event["metrics"])
                (stopping.add if decision is Decision.STOP else stopping.discard)(trial_id)
            case "asked":
                if isinstance(action := course.next(event["more"]), Stop):
                    stopping.add(action.trial_id)
            case "ended":
                stopping.discard(trial_id)
                if index not in again:
                    course.end(trial_id, event["status"] == "failed")
        history.apply(event)
    return Recovered(results, course, elapsed, notices, stopping)


def _superseded(events: list[Event]) -> set[int]:
    """Indices of the ends of trials that were reopened: to the search they never ended."""
    ends: dict[str, int] = {}
    found = set()
    for index, event in enumerate(events):
        if event["what"] == "ended":
            ends[event["trial"]] = index
        elif event["what"] == "reopened":
            found.add(ends[event["trial"]])
    return found
