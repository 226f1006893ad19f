"""The page of all searches: who runs what, where it stands in the queue, and how far it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Protocol

from fastapi import APIRouter, Response

from tuner.errors import EnvironmentFailure
from tuner.live import pages
from tuner.live.app import error
from tuner.live.changes import Json, encoded, text
from tuner.live.event_stream import EventStream
from tuner.live.figures import RunFigures
from tuner.live.hub import MOST_VIEWERS
from tuner.live.queue_source import Entry
from tuner.spec.values import format_number
from tuner.storage.folder import reason

LOOK_EVERY_S = 2.0
"""While somebody looks."""

MOST_ROWS = 2000
"""Searches that the page lists at most: the first ones."""


@dataclass(frozen=True)
class SearchRow:
    """A search, as the page lists it."""

    name: str
    """Of the search, and of its run folder."""
    user: str = ""
    state: str = ""
    position: int | None = None
    """Its place in the queue, from 1; None if it does not wait."""
    best: str = ""
    """In words, such as ``val_accuracy 0.91``."""
    progress: str = ""
    """In words, such as ``37 trials``."""
    reason: str = ""
    """Why it waits, who stopped or resumed it, or how it ended."""
    has_page: bool = True
    """Whether it has a run folder yet."""


class QueueEntry(Entry, Protocol):
    """What the page needs of a search in a queue."""

    @property
    def reason(self) -> str: ...


Rows = Callable[[], Iterable[Sequence[SearchRow]]]


def rows_of(entries: Iterable[QueueEntry], figures: Iterable[RunFigures]) -> list[SearchRow]:
    """The rows of a queue: those that wait in their order, then the others, the latest first.

    Args:
        entries: Those of the queue.
        figures: How runs stand, as `tuner.live.figures.FollowedRuns.read` has them. Those without an entry are listed
            last.

    Returns:
        A row for each search.
    """
    known = {one.run: one for one in figures}
    ordered = sorted(entries, key=lambda one: (one.position is None, one.position or -one.submitted))
    rows = [_row(entry, known.pop(entry.name, None)) for entry in ordered]
    others = (SearchRow(one.run, state=one.state, best=_best(one), progress=_progress(one)) for one in known.values())
    return [*rows, *others]


def _row(entry: QueueEntry, run: RunFigures | None) -> SearchRow:
    told = (_best(run), _progress(run)) if run else ("", "")
    has_page = run is not None or entry.position is None
    return SearchRow(entry.name, entry.user, entry.state, entry.position, *told, entry.reason, has_page)


def _best(run: RunFigures) -> str:
    return ", ".join(f"{metric} {format_number(value)}" for (metric, _), value in run.best.items())


def _progress(run: RunFigures) -> str:
    ended = sum(run.trials.get(status, 0) for status in ("completed", "stopped", "failed"))
    busy = f", {run.busy_slots} of {run.slots} slots" if run.slots else ""
    return f"{ended} of {sum(run.trials.values())} trials ended{busy}"


class _Board:
    """The list of searches, read by one thread while somebody looks."""

    def __init__(self, rows: Rows, problem: Callable[[], str]) -> None:
        self._rows, self._problem = rows, problem
        self._viewers: set[Callable[[], None]] = set()
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None
        self.version = 0
        """Grows whenever the list is another one; 0: it was not read yet."""
        self.shown: dict[str, Json] = {}
        """By name, in order."""
        self.problem = ""

    @contextmanager
    def viewed(self, tell: Callable[[], None]) -> Iterator[None]:
        """Within: ``tell`` is called whenever the list is another one."""
        with self._lock:
            self._viewers.add(tell)
            if self._reader is None:
                self._reader = threading.Thread(target=self._follow, name="list of searches", daemon=True)
                self._reader.start()
        try:
            yield
        finally:
            self._viewers.discard(tell)

    @property
    def viewers(self) -> int:
        """How many there are."""
        return len(self._viewers)

    def _follow(self) -> None:
        try:
            while True:
                for _ in self._look():
                    for tell in list(self._viewers):
                        tell()
                time.sleep(LOOK_EVERY_S)
                with self._lock:
                    if not self._viewers:
                        self._reader = None
                        return
        except BaseException:
            with self._lock:
                self._reader = None  # the next viewer has another one begin
            raise

    def _look(self) -> Iterator[None]:
        """Yields whenever the list is another one."""
        problem = self._problem()
        try:
            for rows in self._rows():
                if self._take({row.name: _shown(row) for row in rows[:MOST_ROWS]}, problem):
                    yield
            return
        except EnvironmentFailure as failure:
            problem = str(failure)
        except OSError as failure:
            problem = f"the searches cannot be listed: {reason(failure)}"
        if self._take(self.shown, problem):
            yield

    def _take(self, shown: dict[str, Json], problem: str) -> bool:
        """Whether the list is another one."""
        if self.version and [*shown.items()] == [*self.shown.items()] and problem == self.problem:
            return False
        self.shown, self.problem = shown, problem
        self.version += 1
        return True


def _shown(row: SearchRow) -> Json:
    return {name: text(value) if isinstance(value, str) else value for name, value in asdict(row).items()}


class _Viewer:
    """What one viewer has."""

    def __init__(self, board: _Board) -> None:
        self._board, self._version = board, 0
        self._known: dict[str, Json] = {}

    def next(self) -> str | None:
        """The event that he lacks: the names in order, and the rows that are other than before."""
        board = self._board
        if self._version == board.version:
            return None
        self._version, shown = board.version, board.shown
        rows = [row for name, row in shown.items() if self._known.get(name) != row]
        self._known = {**shown}
        return f"data: {encoded({'order': [*shown], 'rows': rows, 'problem': board.problem})}\n\n"


def searches_routes(rows: Rows, problem: Callable[[], str] = lambda: "") -> APIRouter:
    """The page of all searches, at the root.

    Args:
        rows: The searches, in order; several times if they are known in part at first, and later as a whole. A thread
            calls it every `LOOK_EVERY_S` while somebody looks; it may raise OSError and EnvironmentFailure, which the
            page tells.
        problem: Why the rows are not how the searches stand now; empty if they are.

    Returns:
        A router to be included in an app, beside that of `run_routes`, whose pages it links. It checks nobody: the app
        does.
    """
    routes, board = APIRouter(include_in_schema=False), _Board(rows, problem)
    routes.include_router(pages.asset_routes())

    @routes.get("/")
    def page() -> Response:
        return pages.page("searches", "searches.js", 0)

    @routes.get("/searches/events")
    def events() -> Response:
        if board.viewers >= MOST_VIEWERS:
            return error(EnvironmentFailure(f"{MOST_VIEWERS} viewers are there already, and more cannot be"), 503)
        return EventStream(_Viewer(board).next, board.viewed)

    return routes
