"""The journal of a run: every event of a search, appended as it happens, from which all else can be rebuilt.

One line an event: the CRC-32 of the rest in hexadecimal, a space, and a JSON object with ``n`` (its number, from 1) and
``what``. A line that is cut off or altered is told by its checksum or its number; the events before it stand.

On a local file system the file ``journal.jsonl`` grows by one write an event, so that a killed driver loses nothing;
what a power cut may lose is what came in the last `SYNC_EVERY_S`. Object stores cannot append: there the events of
`SYNC_EVERY_S` are one object of the folder ``journal``.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import time
import zlib
from dataclasses import dataclass
from typing import Any

from tuner.lock import Lock
from tuner.storage import RunFolder

JOURNAL = "journal"
"""Name of the folder of segments, and, with ``.jsonl``, of the local file."""

SYNC_EVERY_S = 2.0

Event = dict[str, Any]


@dataclass(frozen=True)
class Journal:
    """What was read of a journal."""

    events: tuple[Event, ...]
    size: int
    """Bytes that they take."""
    damage: str
    """What is wrong with what follows; empty where nothing is."""


class JournalWriter:
    """Appends events after those that are there. Whole lines only: what follows the last valid one is cut off."""

    def __init__(self, folder: RunFolder, lock: Lock | None = None) -> None:
        self._folder = folder
        self._lock = lock
        known = read_journal(folder)
        self._number = len(known.events)
        self._buffer: list[bytes] = []
        self._synced = time.monotonic()
        self._file: int | None = None
        if folder.is_local:
            path = folder.local_path / f"{JOURNAL}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.ftruncate(self._file, known.size)
        elif known.damage:
            self._keep_valid(known.size)

    @property
    def number(self) -> int:
        """Of the latest event."""
        return self._number

    def append(self, what: str, **fields: Any) -> None:
        """Adds an event; values that JSON does not know are pickled."""
        self._number += 1
        line = _line({"n": self._number, "what": what, **fields})
        if self._file is not None:
            _write_all(self._file, line)
        self._buffer.append(line)

    def sync(self, now: bool = False) -> None:
        """Makes the events safe from a power cut; unless ``now``, only every `SYNC_EVERY_S`."""
        if self._lock:
            self._lock.renew()
        if not self._buffer or (not now and time.monotonic() < self._synced + SYNC_EVERY_S):
            return
        if self._file is not None:
            os.fdatasync(self._file)
        else:
            self._folder.filesystem.create_dir((self._folder / JOURNAL).path)
            self._folder.write(f"{JOURNAL}/{self._number:09}.jsonl", b"".join(self._buffer))
        self._buffer.clear()
        self._synced = time.monotonic()

    def close(self) -> None:
        """Makes all events safe; nothing can be appended any more."""
        self.sync(now=True)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _keep_valid(self, size: int) -> None:
        """One segment of the first ``size`` bytes in place of all."""
        names, first = _segments(self._folder), f"{JOURNAL}/{0:09}.jsonl"
        self._folder.write(first, b"".join(map(self._folder.read, names))[:size])
        for name in names:
            if name != first:
                self._folder.filesystem.delete_file((self._folder / name).path)


def read_journal(folder: RunFolder) -> Journal:
    """All events up to the first line that is not whole."""
    reader = JournalReader(folder)
    events = tuple(reader.new())
    return Journal(events, reader.size, f"line {len(events) + 1} is damaged" if reader.rest else "")


class JournalReader:
    """Reads a journal that another process may be writing."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._number = 0
        self._segment = ""
        """The latest that was read."""
        self.size = 0
        """Bytes of the events that were read."""
        self.rest = b""
        """What follows them: a line that is being written, or is damaged, and all after it."""

    def new(self) -> list[Event]:
        """The events since the call before, up to the first line that is not whole."""
        events: list[Event] = []
        lines = (self.rest + self._more()).splitlines(keepends=True)
        for line in lines:
            event = _parsed(line)
            if event is None or event.get("n") != self._number + 1:
                break
            self._number += 1
            self.size += len(line)
            events.append(event)
        self.rest = b"".join(lines[len(events) :])
        return events

    def _more(self) -> bytes:
        """What was appended since the call before."""
        if self._folder.exists(f"{JOURNAL}.jsonl"):
            with self._folder.filesystem.open_input_file((self._folder / f"{JOURNAL}.jsonl").path) as file:
                file.seek(self.size + len(self.rest))
                return bytes(file.read())
        names = [name for name in _segments(self._folder) if name > self._segment]
        self._segment = names[-1] if names else self._segment
        return b"".join(map(self._folder.read, names))


def _segments(folder: RunFolder) -> list[str]:
    from pyarrow.fs import FileSelector

    if not folder.exists(JOURNAL):
        return []
    infos = folder.filesystem.get_file_info(FileSelector((folder / JOURNAL).path))
    return sorted(f"{JOURNAL}/{info.base_name}" for info in infos if info.base_name.endswith(".jsonl"))


def _line(event: Event) -> bytes:
    text = json.dumps(event, default=_encoded, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(line: bytes) -> Event | None:
    checksum, _, text = line.partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text[:-1]):
        return None
    event: Event = json.loads(text, object_hook=_decoded)
    return event


_PICKLED = "__pickled__"


def exact(value: Any) -> Any:
    """``value``, or a stand-in for it where JSON would change it (a tuple is read back as a list)."""
    try:
        same = json.loads(json.dumps(value)) == value
    except (TypeError, ValueError):
        same = False
    return value if same else _Pickled(value)


class _Pickled:
    """Written as a pickle though JSON could write it."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _encoded(value: Any) -> Any:
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    from ray import cloudpickle  # a configuration of a param_space may hold anything

    pickled = cloudpickle.dumps(value.value if isinstance(value, _Pickled) else value)
    return {_PICKLED: base64.b64encode(pickled).decode()}


def _decoded(value: dict[str, Any]) -> Any:
    if value.keys() != {_PICKLED}:
        return value
    return pickle.loads(base64.b64decode(value[_PICKLED]))


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
