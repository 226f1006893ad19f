"""Writes the journal of a run: each event is appended as it happens.

On a local file system the file ``journal.jsonl`` grows by one write an event, so that a killed driver loses nothing; a
power cut may lose what came in the last `SYNC_EVERY_S`. Object stores cannot append: there the folder ``journal`` holds
objects of up to `SEGMENT_BYTES`, named by their first event, of which the latest is written again as it grows.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from typing import Any

from tuner.errors import LockLost
from tuner.runs.events import Event
from tuner.runs.journal.format import JOURNAL, line_of, segment_name, segments
from tuner.runs.journal.reader import end_of
from tuner.storage.folder import RunFolder, open_own
from tuner.storage.lock import Lock

SYNC_EVERY_S = 2.0

SEGMENT_BYTES = 1 << 21
"""A million reports are some 200 such objects; while events come, half of one is uploaded every `SYNC_EVERY_S`."""


class JournalWriter:
    """Appends events after those that are there.

    A line that was cut off in mid-write is removed: nothing can have followed from its event. If a whole line is
    damaged, `tuner.search.recovery.read_stored_search` comes first.
    """

    def __init__(self, folder: RunFolder, lock: Lock | None = None) -> None:
        self._lock = lock
        event, size = end_of(folder)
        self._number: int = event["n"] if event else 0
        self._tail = _FileTail(folder, size, lock) if folder.is_local else _SegmentTail(folder)
        self._synced = time.monotonic()

    @property
    def number(self) -> int:
        """Of the latest event."""
        return self._number

    @property
    def is_safe(self) -> bool:
        """Whether a power cut would take no event."""
        return not self._tail.waiting

    def append(self, what: str, **fields: Any) -> None:
        """Adds an event. Storage that fails is `sync`'s to tell: until then the event waits in memory."""
        self._number += 1
        self._tail.add(self._number, line_of({"n": self._number, "what": what, **fields}))

    def sync(self, now: bool = False) -> None:
        """Makes the events safe from a power cut; unless ``now``, only every `SYNC_EVERY_S`.

        Raises OSError if that fails: nothing is lost, and it can be called again. Raises what `Lock.renew` raises.
        """
        if self._lock:
            self._lock.renew()
        due = now or self._tail.failing or time.monotonic() >= self._synced + SYNC_EVERY_S
        if self._tail.waiting and due:
            if self._lock:
                self._lock.check()  # what another process writes by now must not be written over
            self._tail.sync()
            self._synced = time.monotonic()

    def close(self) -> None:
        """Makes all events safe; nothing can be appended any more. Raises as `sync`."""
        self.sync(now=True)
        self._tail.close()


class _FileTail:
    """The end of a local file."""

    def __init__(self, folder: RunFolder, size: int, lock: Lock | None) -> None:
        self._file = open_own(folder.local_path / f"{JOURNAL}.jsonl", os.O_WRONLY | os.O_CREAT)
        os.ftruncate(self._file, size)
        os.fdatasync(self._file)  # a driver that was killed may have left events that only the system has
        self._lock = lock
        self._safe = size
        """Bytes that are on the disk."""
        self.waiting = bytearray()
        """What follows them."""
        self._written = 0
        """How much of that the system has."""

    @property
    def failing(self) -> bool:
        return self._written < len(self.waiting)

    def add(self, number: int, line: bytes) -> None:
        was_failing = self.failing
        self.waiting += line
        if not was_failing:
            with contextlib.suppress(OSError, LockLost):  # `sync` raises them
                if self._lock:
                    self._lock.renew()  # else it could write over what another process writes by now
                self._write()

    def _write(self) -> None:
        while self.failing:
            rest = bytes(self.waiting[self._written :])
            self._written += os.pwrite(self._file, rest, self._safe + self._written)

    def sync(self) -> None:
        self._write()
        try:
            os.fdatasync(self._file)
        except OSError:
            self._written = 0  # the system may have dropped what it could not write, and not say so again
            raise
        self._safe += len(self.waiting)
        self.waiting.clear()
        self._written = 0

    def close(self) -> None:
        os.close(self._file)


class _SegmentTail:
    """The latest object of an object store's journal."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        folder.filesystem.create_dir((folder / JOURNAL).path)
        self._name = ""
        self._segment = bytearray()
        self._stored = 0
        """Bytes of the segment that the store has."""
        self.failing = False

    @property
    def waiting(self) -> bool:
        return self._stored < len(self._segment)

    def add(self, number: int, line: bytes) -> None:
        self._name = self._name or segment_name(number)
        self._segment += line

    def sync(self) -> None:
        self.failing = True
        self._folder.write(self._name, bytes(self._segment))
        self.failing = False
        self._stored = len(self._segment)
        if self._stored >= SEGMENT_BYTES:
            self._name, self._stored = "", 0
            self._segment.clear()

    def close(self) -> None: ...


def rewrite(folder: RunFolder, first: int, events: Iterable[Event]) -> int:
    """Puts a journal of ``events``, numbered from ``first``, in the place of the one that is there, at once.

    ``first`` must be above all numbers of the old one, so that no snapshot fits both. Returns the last number.
    """
    number = first - 1
    data = bytearray()
    for number, event in enumerate(events, first):
        data += line_of({**event, "n": number})
    if folder.is_local:
        folder.write(f"{JOURNAL}.jsonl", bytes(data))
        return number
    old = [segment_name(known) for known, _ in segments(folder)]
    folder.write(segment_name(first), bytes(data))  # a reader begins again at its first event, so the old may stay
    for name in old:
        folder.filesystem.delete_file((folder / name).path)
    return number
