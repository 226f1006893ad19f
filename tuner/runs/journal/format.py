"""The format of a journal: its lines, and the file or the objects that hold them.

A line is an event: the CRC-32 of the rest in hexadecimal, a space, and a JSON object with ``n`` (its number, counted
from 1) and ``what``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator

from tuner.errors import EnvironmentFailure
from tuner.runs.encoding import decoded, encoded, may_be_encoded
from tuner.runs.events import Event, is_event
from tuner.storage.folder import RunFolder

JOURNAL = "journal"
"""Name of the folder of segments, and, with ``.jsonl``, of the local file."""

_DECODER, _PLAIN_DECODER = json.JSONDecoder(object_hook=decoded), json.JSONDecoder()
_SEGMENT = re.compile(r"([0-9]{9,18})\.jsonl")


def line_of(event: Event) -> bytes:
    """The line of ``event``, with its end."""
    text = json.dumps(encoded(event), separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def event_of(line: bytes) -> Event | None:
    """The event of a line without its end; None if it is none."""
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    try:
        event = (_DECODER if may_be_encoded(text) else _PLAIN_DECODER).decode(text.decode())
    except (ValueError, RecursionError):
        return None
    return event if is_event(event) else None


@contextlib.contextmanager
def opened_file(folder: RunFolder) -> Iterator[int | None]:
    """Within: the local file; None if there is none. Raises EnvironmentFailure if it is not a plain file."""
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
            raise EnvironmentFailure(f"{path} is not a plain file: the run folder is damaged")
        yield file
    finally:
        os.close(file)


def segment_name(first: int) -> str:
    """Of the object whose first event has the number ``first``."""
    return f"{JOURNAL}/{first:09}.jsonl"


def segments(folder: RunFolder) -> list[tuple[int, int]]:
    """Of each object of the journal, in order: the number of its first event, and its size in bytes."""
    from pyarrow.fs import FileSelector

    infos = folder.filesystem.get_file_info(FileSelector((folder / JOURNAL).path, allow_not_found=True))
    return sorted((int(name[1]), i.size or 0) for i in infos if (name := _SEGMENT.fullmatch(i.base_name)))
