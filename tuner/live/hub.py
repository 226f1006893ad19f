"""Runs that somebody looks at: one thread reads the journal of each, however many viewers it has."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tuner.errors import EnvironmentFailure
from tuner.live.changes import Json, changes, cursor, encoded, event_of, head, text
from tuner.live.live_run import LiveRun
from tuner.live.now import now
from tuner.storage.folder import RunFolder, reason

KEPT_S = 60.0
"""A run is read on for so long after its last viewer left: one that comes back finds it as it was."""

MOST_IDLE = 20
"""Runs without a viewer that are read on: each holds a thread, and all that its journal tells."""

MOST_VIEWERS = 500
"""At once, over all runs: a server has 800 connections, and others want some."""

_ASKED_S = 5.0
"""Whoever has asked for a run becomes its viewer within this time."""

_LOCAL_S, _REMOTE_S = 0.25, 2.0
"""Between two looks at a journal; those of a remote storage cost."""

_NOW_EVERY = 4
"""At so many looks at the journal, one at the lock, at live.json and at the search as a whole."""

_CACHED = 16


@dataclass(frozen=True)
class Message:
    """All that a viewer lacks."""

    id: str
    """The cursor with which he asks next."""
    moment: int
    """Number of the state of the moment that he has then."""
    data: str
    """One line of JSON."""


class Watched:
    """A run that is looked at."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.run = LiveRun(folder)
        self.lock = threading.Lock()
        """Held by whoever uses `run`."""
        self.is_read = False
        """Whether its journal was read to the end once."""
        self.used = time.monotonic()
        self._problem = ""
        self._now: Json = {}
        self._head: Json = {}
        self._head_at = ""
        """The cursor of the events that `_head` knows."""
        self._moment = 0
        self._messages: dict[tuple[str, int], Message | None] = {}
        self._viewers: set[Callable[[], None]] = set()

    @contextlib.contextmanager
    def viewed(self, tell: Callable[[], None]) -> Iterator[None]:
        """Within: ``tell`` is called, in another thread, whenever there may be something new."""
        self._viewers.add(tell)
        try:
            yield
        finally:
            self._viewers.discard(tell)
            self.used = time.monotonic()

    @property
    def viewers(self) -> int:
        """How many there are."""
        return len(self._viewers)

    def message(self, since: str, moment: int) -> Message | None:
        """What a viewer lacks who has all up to ``since`` and the state of the moment ``moment``; None if nothing."""
        with self.lock:
            key = since, moment
            if key not in self._messages:
                if len(self._messages) >= _CACHED:
                    self._messages.clear()
                self._messages[key] = self._made(since, moment)
            return self._messages[key]

    def _made(self, since: str, moment: int) -> Message | None:
        is_told = bool(self.run.results.spec)
        here = cursor(self.run) if is_told else ""
        if here == since and moment == self._moment:
            return None
        told = changes(self.run, since) if is_told else {"id": "", "whole": True}
        if moment != self._moment:
            told["now"] = self._now
        if is_told and told["whole"]:
            told["head"] = head(self.run)
        elif moment != self._moment and event_of(self.run, self._head_at) is not None:
            told["head"] = self._head
        return Message(here, self._moment, encoded(told))

    def look(self, also_now: bool) -> None:
        """Reads what is new, and tells the viewers."""
        with self.lock:
            is_new = self._read()
            if also_now and self._look_at_now():
                is_new = True
            if is_new or not self.is_read:
                self._messages.clear()
        if is_new or not self.is_read:
            self.is_read = True
            for tell in list(self._viewers):
                tell()

    def _read(self) -> bool:
        try:
            found, self._problem = self.run.read(), ""
        except EnvironmentFailure as error:
            found, self._problem = False, str(error)
        except OSError as error:
            found, self._problem = False, f"{self.folder.location} cannot be read: {reason(error)}"
        return found

    def _look_at_now(self) -> bool:
        """Whether the state of the moment, or how the search stands, is another one."""
        if self._problem:
            found: Json = {"state": "unreadable", "words": text(self._problem)}
        else:
            try:
                found = now(self.run.results)
            except OSError as error:
                found = {"state": "unreadable", "words": f"{self.folder.location} cannot be read: {reason(error)}"}
        has_grown = bool(self.run.results.spec) and self._head_at != cursor(self.run)
        if has_grown:
            self._head, self._head_at = head(self.run), cursor(self.run)
        if found == self._now and not has_grown:
            return False
        self._now = found
        self._moment += 1
        return True


class Hub:
    """The runs that are looked at now."""

    def __init__(self) -> None:
        self._watched: dict[str, Watched] = {}
        self._lock = threading.Lock()

    @property
    def viewers(self) -> int:
        """Of all runs."""
        with self._lock:
            return sum(one.viewers for one in self._watched.values())

    def watched(self, folder: RunFolder) -> Watched:
        """The run in ``folder``, which is read on from now on."""
        with self._lock:
            found = self._watched.get(folder.location)
            if found is None:
                self._make_room()
                found = self._watched[folder.location] = Watched(folder)
                name = f"live page of {folder.location}"
                threading.Thread(target=self._follow, args=[found], name=name, daemon=True).start()
            found.used = time.monotonic()
            return found

    def _follow(self, watched: Watched) -> None:
        pause = threading.Event()
        count = 0
        try:
            while self._is_wanted(watched):
                watched.look(also_now=count % _NOW_EVERY == 0)
                count += 1
                pause.wait(_LOCAL_S if watched.folder.is_local else _REMOTE_S)
        finally:  # after a fault too
            with self._lock:
                self._forget(watched)

    def _is_wanted(self, watched: Watched) -> bool:
        """Whether somebody looks at it, or may do so again soon."""
        with self._lock:
            if watched.viewers:
                return True
            if time.monotonic() - watched.used > KEPT_S:
                self._forget(watched)  # at once: another viewer may come before this thread ends
            return self._watched.get(watched.folder.location) is watched

    def _make_room(self) -> None:
        """Forgets the runs that have had no viewer for the longest time, if there are too many such."""
        idle = sorted((one for one in self._watched.values() if not one.viewers), key=lambda one: one.used)
        for watched in idle[: max(0, len(idle) + 1 - MOST_IDLE)]:
            if time.monotonic() - watched.used > _ASKED_S:
                self._forget(watched)

    def _forget(self, watched: Watched) -> None:
        """The next viewer has it read anew."""
        if self._watched.get(watched.folder.location) is watched:
            del self._watched[watched.folder.location]
