"""The journal of a run: every event of a search, appended as it happens, from which all else can be rebuilt.

One line an event: the CRC-32 of the rest in hexadecimal, a space, and a JSON object with ``n`` (its number, counted
from 1) and ``what``. A damaged line costs itself alone: the checksum tells it, and the numbers tell what is missing.

On a local file system the file ``journal.jsonl`` grows by one write an event, so that a killed driver loses nothing; a
power cut may lose what came in the last `SYNC_EVERY_S`. Object stores cannot append: there the folder ``journal`` holds
objects of up to `SEGMENT_BYTES`, named by their first event, of which the latest is written again as it grows.

Reading a journal executes nothing: see `tuner.encoding`.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tuner.encoding import decoded, encoded, may_be_encoded
from tuner.errors import EnvironmentFailure, LockLost
from tuner.events import Event, is_event
from tuner.lock import Lock
from tuner.storage import RunFolder, open_own

JOURNAL = "journal"
"""Name of the folder of segments, and, with ``.jsonl``, of the local file."""

SYNC_EVERY_S = 2.0

SEGMENT_BYTES = 1 << 21
"""A million reports are some 200 such objects; while events come, half of one is uploaded every `SYNC_EVERY_S`."""

_PIECE_BYTES = 1 << 22
"""How much of a file is read at a time."""

_LONGEST_LINE = 1 << 28
"""Bytes: a trial that a recovery writes down as one event may have a million reports. More than that is no line."""


class JournalWriter:
    """Appends events after those that are there.

    A line that was cut off in mid-write is cut away: nothing can have followed from its event. Where a whole line is
    damaged `tuner.engine.recovery.repair` comes first.
    """

    def __init__(self, folder: RunFolder, lock: Lock | None = None) -> None:
        self._lock = lock
        event, size = _end(folder)
        self._number: int = event["n"] if event else 0
        self._tail = _FileTail(folder, size, lock) if folder.is_local else _SegmentTail(folder)
        self._synced = time.monotonic()

    @property
    def number(self) -> int:
        """Of the latest event."""
        return self._number

    def append(self, what: str, **fields: Any) -> None:
        """Adds an event. Storage that fails is `sync`'s to tell: until then the event waits in memory."""
        self._number += 1
        self._tail.add(self._number, _line({"n": self._number, "what": what, **fields}))

    def sync(self, now: bool = False) -> None:
        """Makes the events safe from a power cut; unless ``now``, only every `SYNC_EVERY_S`.

        Raises OSError where that fails: nothing is lost, and it can be called again. Raises what `Lock.renew` raises.
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
        self._name = self._name or _segment_name(number)
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
        data += _line({**event, "n": number})
    if folder.is_local:
        folder.write(f"{JOURNAL}.jsonl", bytes(data))
        return number
    old = [name for name, _ in _segments(folder)]
    folder.write(_segment_name(first), bytes(data))  # a reader begins again at its first event, so the old may stay
    for name in old:
        folder.filesystem.delete_file((folder / name).path)
    return number


@dataclass(frozen=True)
class Journal:
    """What was read of a journal."""

    events: tuple[Event, ...]
    damage: str
    """What of it is lost; empty where nothing is."""


def read_journal(folder: RunFolder) -> Journal:
    """All events that can be read. For long journals `JournalReader.new` is the way."""
    reader = JournalReader(folder)
    events: list[Event] = []
    for event in reader.new():
        if event["what"] == "began":
            events.clear()
        events.append(event)
    return Journal(tuple(events), reader.damage)


@dataclass
class JournalReader:
    """Reads a journal that another process may be writing."""

    folder: RunFolder
    number: int = 0
    """Of the latest event that was read."""
    size: int = 0
    """Bytes of the whole lines that were read: of the file, or of the latest segment."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Numbers, first and last, of events that are missing before the latest one that was read."""
    damaged: int = 0
    """Whole lines that are no events."""
    torn: bool = False
    """Whether its last line is not whole: it is being written, or was when the writer was killed."""
    _segment: str = ""
    """The latest of an object store that was looked at."""
    _file: int = 0
    """Inode of the local file."""

    @property
    def damage(self) -> str:
        """What is lost, in words; empty where nothing is."""
        if not self.lost and not self.damaged:
            return ""
        missing = [f"{a}" if a == b else f"{a} to {b}" for a, b in self.lost[:5]]
        more = ", …" if len(self.lost) > len(missing) else ""
        numbers = f"; events {', '.join(missing)}{more} are lost" if missing else ""
        return f"{self.damaged} damaged line{'s' * (self.damaged != 1)}{numbers}"

    @property
    def damaged_at(self) -> int:
        """Number of the first event that is lost; 0 where none is."""
        if self.lost:
            return self.lost[0][0]
        return self.number + 1 if self.damaged else 0

    def new(self) -> Iterator[Event]:
        """The events since the call before. ``began`` is the first, also of a journal that was written anew."""
        for data in self._pieces():
            lines = data.split(b"\n")
            self.torn = bool(lines.pop())
            for line in lines:
                self.size += len(line) + 1
                event = _parsed(line)
                if event is None:
                    self.damaged += 1
                elif event["what"] == "began":
                    self.lost, self.damaged = [], 0
                    self.number = event["n"]
                    yield event
                elif event["n"] > self.number:
                    if event["n"] > self.number + 1:
                        self.lost.append((self.number + 1, event["n"] - 1))
                    self.number = event["n"]
                    yield event

    def _pieces(self) -> Iterator[bytes]:
        """What follows the `size` bytes that were read, whole lines and what follows them."""
        if self.folder.is_local:
            yield from self._file_pieces()
            return
        for name, size in _segments(self.folder):
            if name < self._segment or (name == self._segment and size <= self.size):
                continue
            if name > self._segment:
                self.damaged += self.torn
                self._segment, self.size = name, 0
            yield self.folder.read(name)[self.size :]

    def _file_pieces(self) -> Iterator[bytes]:
        with _opened(self.folder) as file:
            if file is None:
                return
            now, wanted = os.fstat(file), _PIECE_BYTES
            if now.st_ino != self._file or now.st_size < self.size:  # another one has taken its place
                self._file, self.size, self.number = now.st_ino, 0, 0
            while (left := now.st_size - self.size) > 0:
                piece = os.pread(file, min(wanted, left), self.size)
                end = len(piece) if len(piece) >= left or not piece else piece.rfind(b"\n") + 1
                if end:
                    yield piece[:end]
                if len(piece) >= left or not piece:
                    return
                if not end and wanted > _LONGEST_LINE:
                    self.damaged += 1
                    return
                wanted *= 1 if end else 2  # a line longer than a piece


def first_event(folder: RunFolder) -> Event | None:
    """The first event that can be read; None where there is none. Does not read the rest."""
    return next(JournalReader(folder).new(), None)


def last_event(folder: RunFolder) -> Event | None:
    """The last event that can be read; None where there is none. Does not read what comes before."""
    return _end(folder)[0]


def _end(folder: RunFolder) -> tuple[Event | None, int]:
    """The last event that can be read, and the size of a local file's whole lines."""
    size = 0
    for size, data in _tails(folder):
        for line in reversed(data[: data.rfind(b"\n") + 1].split(b"\n")):
            if event := _parsed(line):
                return event, size
    return None, size


def _tails(folder: RunFolder) -> Iterator[tuple[int, bytes]]:
    """The size of a local file's whole lines; and the end of the journal, each time more of it."""
    if not folder.is_local:
        for name, _ in reversed(_segments(folder)):
            yield 0, folder.read(name)
        return
    with _opened(folder) as file:
        if file is None:
            return
        size, wanted = os.fstat(file).st_size, 1 << 16
        while True:
            data = os.pread(file, wanted, max(0, size - wanted))
            yield size - len(data) + data.rfind(b"\n") + 1, data
            if wanted >= min(size, _LONGEST_LINE):
                return
            wanted *= 8


@contextlib.contextmanager
def _opened(folder: RunFolder) -> Iterator[int | None]:
    """Within: the local file; None where there is none. Raises EnvironmentFailure where it is no plain file."""
    path = folder.local_path / f"{JOURNAL}.jsonl"
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    except OSError as error:
        raise EnvironmentFailure(f"{path} cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise EnvironmentFailure(f"{path} is no plain file: the run folder is damaged")
        yield file
    finally:
        os.close(file)


def _segment_name(number: int) -> str:
    return f"{JOURNAL}/{number:09}.jsonl"


def _segments(folder: RunFolder) -> list[tuple[str, int]]:
    """Name and size of each object of the journal, in order."""
    from pyarrow.fs import FileSelector

    infos = folder.filesystem.get_file_info(FileSelector((folder / JOURNAL).path, allow_not_found=True))
    return sorted((f"{JOURNAL}/{i.base_name}", i.size or 0) for i in infos if i.base_name.endswith(".jsonl"))


def _line(event: Event) -> bytes:
    text = json.dumps(encoded(event), separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(line: bytes) -> Event | None:
    """The event of a line without its end; None where it is none."""
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    try:
        event = json.loads(text, object_hook=decoded) if may_be_encoded(text) else json.loads(text)
    except (ValueError, RecursionError):
        return None
    return event if is_event(event) else None
