"""Rebuilds a search from its run folder: from its journal, which is enough, and its snapshot, which saves time.

The snapshot is written after the journal's events up to it are safe. So it knows less than the journal, unless a file
of the run folder was damaged from outside. Then each replaces what the other lost: `read_stored_search` writes what
they have together as a new journal and its snapshot, before anything else happens.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.errors import InputError, TunerError
from tuner.runs.encoding import opened
from tuner.runs.events import Compared, Event
from tuner.runs.file_shapes import Provenance, usable
from tuner.runs.history import EventApplier, origin_of, reopened_by, set_ending, state_of
from tuner.runs.journal import JournalReader, rewrite
from tuner.runs.results import EXPERIMENT, ResultSet
from tuner.search.emitted_events import commanded, one_by_one
from tuner.search.snapshot import Snapshot, read_snapshot, write_snapshot
from tuner.search.state import SearchState
from tuner.search.usage import UsageTracker, usage_of
from tuner.spec.quantities import counted
from tuner.storage.folder import RunFolder


@dataclass
class StoredSearch:
    """What a run folder holds of a search."""

    results: ResultSet
    snapshot: Snapshot | None = None
    last: Event = field(default_factory=lambda: {"what": ""})
    """The last event that is left."""
    tail: list[Event] = field(default_factory=list)
    """The events after the snapshot."""
    request: str = ""
    """By which the search was made longer that has not come to its end since; empty if there is none."""
    notices: list[str] = field(default_factory=list)
    """What the user should know of how it was recovered."""
    trust: bool = False
    """Whether Python objects are opened whoever pickled them."""
    elapsed: float = 0.0
    """Seconds of the search, as the journal tells."""
    usage: UsageTracker = field(default_factory=lambda: UsageTracker(()))
    """What the events add up to."""
    ends: dict[str, int] = field(default_factory=dict)
    """Of each trial that ended: the number of the event."""
    superseded: set[int] = field(default_factory=set)
    """Numbers of the events that ended trials which were reopened."""
    renewed: int = 0
    """The number of the latest event since which the searcher is another one, as its options or its space changed."""
    drawn: int = 0
    """How many trials there were at that event. Unlike its number that is the same if the search was interrupted."""
    planned: int | None = None
    """Trials of the budget for which the searcher was made; a command may have changed that number since."""
    _searched: str = ""
    """As `search_of` of the latest experiment."""
    _suggested: set[str] = field(default_factory=set)
    """The trials so far."""

    def extended(self, event: Event) -> None:
        """Takes account of an event that was appended to the journal after it was read."""
        EventApplier(self.results).apply(event)
        self.note(event)
        self.usage.apply(event)

    def add_up(self, events: Iterable[Event]) -> None:
        """Counts the usage anew from ``events``, of which the first says what the trials are compared by."""
        for event in one_by_one(events):
            if event["what"] == "began":
                self.usage = usage_of(self.results)
            self.usage.apply(event)

    def note(self, event: Event) -> None:
        """Takes account of the next event of the journal."""
        self.last = event
        match event["what"]:
            case "began":
                self.results.provenance = usable(Provenance, event["provenance"])[0] | self.results.provenance
                self.request, self.tail, self.elapsed = event.get("request", ""), [], 0.0
                self.ends, self.superseded = {}, set()
                self.renewed, self.drawn = event.get("renewed", 0), event.get("drawn", 0)
                self._searched, self._suggested = search_of(event["spec"]), set()
                self.planned = event.get("planned", _trials(event["spec"]))
                if self.snapshot and self.snapshot.number < event["n"]:
                    self.snapshot = None  # of the journal before this one
            case "extended":
                self.request, self.planned = event.get("request", ""), _trials(event["spec"])
                if self._searched != (searched := search_of(event["spec"])):
                    self.renewed, self.drawn, self._searched = event["n"], len(self._suggested), searched
            case "commanded" if "search_space" in event.get("changed", {}):
                self.renewed, self.drawn = event["n"], len(self._suggested)
                self.planned, self._searched = _trials(self.results.spec), search_of(self.results.spec)
            case "left" if not event["interrupted"]:
                self.request = ""
            case "suggested":
                self._suggested.add(event["trial"])
            case "ended" | "trial":
                self._suggested.add(event["trial"])
                self.ends[event["trial"]] = event["n"]
        self.superseded.update(self.ends[trial_id] for trial_id in reopened_by(event) if trial_id in self.ends)
        self.elapsed = event.get("elapsed", self.elapsed)
        if self.snapshot and event["n"] > self.snapshot.number:
            self.tail.append(event)


@dataclass
class RecoveredSearch:
    """A search as it was at its last known event."""

    results: ResultSet
    state: SearchState
    usage: UsageTracker
    elapsed: float
    notices: list[str] = field(default_factory=list)


class ReplayDiverged(TunerError):
    """A searcher does not suggest again what the journal says it suggested."""


def _trials(spec: Mapping[str, Any]) -> int | None:
    """Those of the budget of an experiment; None if it does not tell."""
    found = spec.get("budget", {}).get("trials")
    return found if isinstance(found, int) else None


SEARCH_KEYS = ("search_space", "constraints", "search")
"""The keys of an experiment from which its searcher is made."""


def search_of(spec: Mapping[str, Any]) -> str:
    """`SEARCH_KEYS` as one text."""
    return json.dumps([spec.get(key) for key in SEARCH_KEYS], default=str)


def read_stored_search(files: ResultSet, trust: bool = False) -> StoredSearch:
    """Reads the journal of a run, and repairs it where anything of it is lost.

    ``files``: what the run's other files hold, for where the journal has lost even the experiment. The caller holds the
    lock of the folder. ``trust``: Python objects in it are opened whoever pickled them. Raises InputError if they
    must not be, where neither journal nor snapshot is left of a search that had trials, and where nothing tells its
    experiment.
    """
    folder = files.folder
    snapshot, unusable = read_snapshot(folder, trust)
    reader = JournalReader(folder, Compared.by(files.spec))
    history = EventApplier(ResultSet(folder, files.spec, dict(files.provenance)))
    stock = StoredSearch(history.results, snapshot, trust=trust)

    def applied() -> Iterator[Event]:
        for event in _opened(reader.new(), folder, trust):
            changed = history.apply(event)
            stock.note(event)
            if changed or "trial" not in event:
                yield event

    stock.add_up(applied())
    if not stock.results.spec:
        lost = f"neither its journal nor {EXPERIMENT} tells what was searched"
        raise InputError(f"{folder.location}: {lost}: nothing to resume; the journal stays as it is")
    if unusable:
        stock.notices.append(f"{folder.location}: state.pkl {unusable}: the journal is played from its start instead")
    if reader.damage or (stock.snapshot and stock.snapshot.number > reader.number) or reader.number == 0:
        whole = stock.snapshot is not None and stock.snapshot.trials is not None
        if reader.number == 0 and not whole and (files.trials or not files.spec):
            raise InputError(
                f"{folder.location}: neither its journal nor a snapshot that can be used is left: nothing to resume; "
                f"what its tables hold: python -m tuner show {folder.quoted}"
            )
        known = {command.id: command for command in (*files.commands, *stock.results.commands)}
        stock.results.commands = list(known.values())  # the tables are behind: what they tell came first
        _repair(stock, reader)
    if not reader.damage or stock.last["what"] == "left":  # else the end may be among what is lost
        set_ending(stock.results, stock.last)
    return stock


def _repair(stock: StoredSearch, reader: JournalReader) -> None:
    """Makes journal and snapshot agree on what is left of both: a kill at any moment leaves it to be done again."""
    folder, snapshot = stock.results.folder, stock.snapshot
    known, elapsed, state = reader.number, stock.elapsed, None
    if snapshot:
        known, elapsed = max(known, snapshot.number), max(elapsed, snapshot.elapsed)
    if snapshot and snapshot.trials:
        state = None if _extended(stock.tail) else snapshot.state
        told, commands = stock.results, list(stock.results.commands)
        stock.results = ResultSet(folder, told.spec, told.provenance, snapshot.trials())
        holes = any(last > snapshot.number for _, last in reader.lost)
        elapsed = _replay(stock.tail, EventApplier(stock.results), None, snapshot.elapsed)
        stock.results.commands = commands
        try:
            _replay(stock.tail, None, state, elapsed, adopted=math.inf if holes else 0)
        except ReplayDiverged:  # what the two have together is played into a new searcher
            state = None
    began: Event = {"what": "began", "spec": stock.results.spec, "provenance": stock.results.provenance}
    began |= {"planned": stock.planned} if stock.planned else {}
    events = [began | ({"request": stock.request} if stock.request else {})]
    events += map(commanded, stock.results.commands)
    events += [{"what": "trial", "trial": t.id, "state": state_of(t)} for t in stock.results.trials]
    events.append({"what": "recovered", "elapsed": elapsed, "held": stock.usage.held})
    events += [stock.last] if stock.last["what"] == "left" else []  # the run had come to its end
    if stock.renewed:  # the trials are not in the order in which they came and went
        stock.renewed = events[0]["renewed"] = known + len(events)
        events[0]["drawn"] = stock.drawn
    stock.snapshot, stock.tail, stock.superseded = None, [], set()
    stock.ends = {event["trial"]: n for n, event in enumerate(events, known + 1) if event["what"] == "trial"}
    stock.add_up({**event, "n": number} for number, event in enumerate(events, known + 1))
    if state:
        stock.snapshot = Snapshot(known + len(events), elapsed, state, lambda: stock.results.trials)
        write_snapshot(folder, stock.snapshot)
    rewrite(folder, known + 1, events)
    damage = reader.damage or f"the events after number {reader.number} are lost"
    stock.notices.append(f"{folder.location}: the journal: {damage}; the search continues with what is left")


def recover(stock: StoredSearch, new_state: Callable[[], SearchState], anew: bool = False) -> RecoveredSearch:
    """The search of ``stock``; ``anew`` if it was extended just now.

    If it was extended since the snapshot, or there is none, all events are played into a new searcher and scheduler.
    """
    results, snapshot = stock.results, stock.snapshot
    if snapshot and not anew and not _extended(stock.tail):
        with contextlib.suppress(ReplayDiverged):  # a searcher may keep state outside of its pickle: then all is played
            elapsed = _replay(stock.tail, None, snapshot.state, snapshot.elapsed)
            _agree(results, snapshot.state)
            return RecoveredSearch(results, snapshot.state, stock.usage, elapsed, stock.notices)

    def played(adopted: float) -> RecoveredSearch:
        state, events = new_state(), _opened(JournalReader(results.folder).new(), results.folder, stock.trust)
        elapsed = _replay(events, None, state, 0.0, adopted, stock.superseded)
        _agree(results, state)
        if stock.renewed and stock.renewed == stock.last.get("n"):
            stock.notices.append(f"{results.folder.location}: {_what_it_knows(state, results)}")
        return RecoveredSearch(results, state, stock.usage, elapsed, stock.notices)

    try:
        return played(stock.renewed)
    except ReplayDiverged as divergence:
        told = f"{divergence}; the searcher learns from all trials, and its further draws are others"
        stock.notices.append(f"{results.folder.location}: {told}")
        return played(math.inf)


def _agree(results: ResultSet, state: SearchState) -> None:
    """Lets ``state`` hold those trials for running that run, where a damaged journal told it otherwise."""
    running = {trial.id: trial for trial in results.trials if not trial.has_ended}
    for trial_id in sorted(state.open - running.keys()):
        known = results.get(trial_id)
        state.end(trial_id, known is not None and known.status == "failed")
    for trial_id in sorted(running.keys() - state.open):
        origin = running[trial_id].origin
        state.add(trial_id, running[trial_id].first_config, origin.begins_at if origin else 0)


def _what_it_knows(state: SearchState, results: ResultSet) -> str:
    """Of which trials a new searcher knows."""
    count, outside = len(results.trials), len(state.outside)
    told = f"the search was changed: {count - outside} of the {counted(count, 'trial')} so far lie in its space"
    if outside:
        told += f", and it learns nothing from the others ({next(iter(state.outside.values()))})"
    return told


def _extended(events: Iterable[Event]) -> bool:
    """Whether the searcher after them is another one."""
    return any(event["what"] == "extended" or "search_space" in event.get("changed", {}) for event in events)


def with_new_searcher(results: ResultSet, state: SearchState) -> SearchState:
    """``state``, which has seen nothing, after all that the journal tells: its searcher adopts what others suggested.

    As a resume would make it, so that the two go the same way. The events must be on the storage.
    """
    told = StoredSearch(ResultSet(results.folder, results.spec, {}))
    for event in JournalReader(results.folder).new():
        told.note(event)
    events = _opened(JournalReader(results.folder).new(), results.folder, trust=True)  # it is this process's own run
    _replay(events, None, state, 0.0, math.inf, told.superseded)
    return state


def _opened(events: Iterable[Event], folder: RunFolder, trust: bool) -> Iterator[Event]:
    """``events`` with the Python objects of their configurations. Raises InputError if one must not be opened."""
    for event in events:
        try:
            yield opened(event, trust) if event["what"] in ("suggested", "trial") or "segment" in event else event
        except InputError as error:
            raise InputError(f"{folder.location}: event {event['n']} of the journal: {error}") from None


def _replay(
    events: Iterable[Event],
    history: EventApplier | None,
    state: SearchState | None,
    elapsed: float,
    adopted: float = 0,
    superseded: Collection[int] = (),
) -> float:
    """Applies ``events`` to ``history`` and ``state``, if they are given. Returns the second of the search then.

    ``adopted``: up to the event of that number the searcher gets the configurations that ran, and is not asked again.
    ``superseded``: numbers of events that ended a trial which was reopened: for the search it never ended. Raises
    ReplayDiverged.
    """

    def applied() -> Iterator[Event]:
        for event in events:
            if history:
                history.apply(event)
            yield event

    for event in one_by_one(applied()):
        elapsed = event.get("elapsed", elapsed)
        if state:
            _tell(state, event, event["n"] <= adopted, superseded)
    return elapsed


def _tell(state: SearchState, event: Event, adopt: bool, superseded: Collection[int]) -> None:
    """Lets ``state`` learn what ``event`` tells; of trials whose suggestion is lost it knows nothing."""
    trial_id = event.get("trial", "")
    match event["what"]:
        case "suggested":
            config, origin = event["config"], origin_of(event)
            if adopt or origin:
                state.adopt(trial_id, config)
            elif (suggested := state.suggest(trial_id)) != config:
                raise ReplayDiverged(f"trial {trial_id} was {config}, and the search now suggests {suggested}")
            state.add(trial_id, config, origin.begins_at if origin else 0)
        case "reported" if state.runs(trial_id):
            state.report(trial_id, event["step"], event["metrics"], event["seconds"])
        case "asked":
            state.next_action(event["more"])
        case "commanded" if event["done"]:
            state.commanded(event)
        case "ended" if state.runs(trial_id) and event["n"] not in superseded:
            state.end(trial_id, event["status"] == "failed")
