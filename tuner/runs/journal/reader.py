"""Reads the journal of a run, which another process may be writing.

A damaged line costs itself alone: the checksum tells it, and the numbers tell what is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from tuner.runs.events import Compared, Event
from tuner.runs.journal.format import event_of, opened_file, segment_name, segments
from tuner.storage.folder import RunFolder

_PIECE_BYTES = 1 << 22
"""How much of a file is read at a time."""

_LONGEST_LINE = 1 << 28
"""Bytes. A trial that a recovery writes as one event may have a million reports. Anything longer is not a line."""


@dataclass
class JournalReader:
    """Reads a journal that another process may be writing."""

    folder: RunFolder
    compared: Compared = field(default_factory=Compared)
    """The metrics that reports must have, if known before the event ``began``, which names them, was read."""
    number: int = 0
    """Of the latest event that was read."""
    size: int = 0
    """Bytes of the whole lines that were read: of the file, or of the latest segment."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Numbers, first and last, of events that are missing before the latest one that was read."""
    damaged: int = 0
    """Whole lines that do not hold an event."""
    torn: bool = False
    """Whether its last line is not whole: it is being written, or was when the writer was killed."""
    _segment: int = 0
    """Number of the first event of the latest segment that was looked at, in an object store."""
    _file: int = 0
    """Inode of the local file."""

    @classmethod
    def at_end(cls, folder: RunFolder) -> JournalReader:
        """One that reads what is appended from now on."""
        event, size = end_of(folder)
        reader = cls(folder, number=event["n"] if event else 0, size=size)
        if folder.is_local:
            with opened_file(folder) as file:
                reader._file = 0 if file is None else os.fstat(file).st_ino
        else:
            reader._segment, reader.size = max(segments(folder), default=(0, 0))
        return reader

    @property
    def damage(self) -> str:
        """A text that names the lost events; empty if none is lost."""
        told = [f"{self.damaged} damaged line{'s' if self.damaged > 1 else ''}"] if self.damaged else []
        if self.lost:
            missing = [f"{a}" if a == b else f"{a} to {b}" for a, b in self.lost[:5]]
            more = ", …" if len(self.lost) > len(missing) else ""
            one = len(self.lost) == 1 and self.lost[0][0] == self.lost[0][1]
            told.append(f"event{'' if one else 's'} {', '.join(missing)}{more} {'is' if one else 'are'} lost")
        return "; ".join(told)

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
                event = event_of(line)
                if event is not None and event["what"] == "began":
                    self.compared = Compared.by(event["spec"])
                if event is None or not self.compared.tells(event):
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
        for first, size in segments(self.folder):
            if first < self._segment or (first == self._segment and size <= self.size):
                continue
            if first > self._segment:
                self.damaged += self.torn
                self._segment, self.size = first, 0
            yield self.folder.read(segment_name(first))[self.size :]

    def _file_pieces(self) -> Iterator[bytes]:
        with opened_file(self.folder) as file:
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
    """The first event that can be read; None if there is none. Does not read the rest."""
    return next(JournalReader(folder).new(), None)


def has_lines(folder: RunFolder) -> bool:
    """Whether the journal holds a whole line, damaged or not."""
    reader = JournalReader(folder)
    return next(reader.new(), None) is not None or reader.damaged > 0


def last_event(folder: RunFolder) -> Event | None:
    """The last event that can be read; None if there is none. Does not read what comes before."""
    return end_of(folder)[0]


def end_of(folder: RunFolder) -> tuple[Event | None, int]:
    """The last event that can be read, and the size of a local file's whole lines."""
    size = 0
    for size, data in _tails(folder):
        for line in reversed(data[: data.rfind(b"\n") + 1].split(b"\n")):
            if event := event_of(line):
                return event, size
    return None, size


def _tails(folder: RunFolder) -> Iterator[tuple[int, bytes]]:
    """The size of a local file's whole lines; and the end of the journal, each time more of it."""
    if not folder.is_local:
        for first, _ in reversed(segments(folder)):
            yield 0, folder.read(segment_name(first))
        return
    with opened_file(folder) as file:
        if file is None:
            return
        size, wanted = os.fstat(file).st_size, 1 << 16
        while True:
            data = os.pread(file, wanted, max(0, size - wanted))
            yield size - len(data) + data.rfind(b"\n") + 1, data
            if wanted >= min(size, _LONGEST_LINE):
                return
            wanted *= 8
