"""The manifest of a checkpoint: its files with their sizes and checksums, which tell whether it is whole.

It is the last file that is written, so that a checkpoint without one is torn.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.storage.folder import RunFolder
from tuner.storage.untrusted_json import parsed

MANIFEST = ".manifest.json"
"""Its name in the folder of the checkpoint."""

_CHUNK = 2**20

_LONGEST = 2**26
"""Bytes of a manifest at most: that of half a million files."""


def contents(folder: RunFolder) -> dict[str, Any]:
    """What is in ``folder``, for `seal`.

    On a remote file system it holds sizes only: reading all of it again would take as long as writing it.
    """
    return {
        name: {"bytes": size, "crc32": f"{_crc32(folder, name):08x}" if folder.is_local else None}
        for name, size in _files(folder)
    }


def seal(folder: RunFolder, files: dict[str, Any]) -> None:
    """Writes the manifest of a checkpoint in ``folder``, which must hold ``files``; replaces one that is there."""
    folder.write(MANIFEST, (json.dumps({"files": files}, indent=1) + "\n").encode())


def make_durable(folder: RunFolder) -> None:
    """Returns when the disk has ``folder`` with all that is in it, and the two folders that lead to it.

    A remote file system does so by itself. Nothing is waited for where the folder is deleted meanwhile.
    """
    if not folder.is_local:
        return
    path = folder.local_path
    with contextlib.suppress(FileNotFoundError):
        for place, _, names in os.walk(path):
            for name in names:
                _sync(Path(place, name))
            _sync_folder(Path(place))
        _sync_folder(path.parent)
        _sync_folder(path.parent.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: Path) -> None:
    try:
        _sync(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that does not sync folders by themselves
            raise


def find_damage(folder: RunFolder) -> str:
    """The damage of the checkpoint in ``folder`` as a text; empty if there is none.

    A checkpoint without a manifest counts as undamaged, because older versions wrote none, unless all older checkpoints
    of the run have one. A remote file system keeps checksums itself: there only names and sizes are compared.
    """
    try:
        if not folder.exists():
            return "it is gone"
        if not folder.exists(MANIFEST):
            torn = folder.is_local and _others_have_one(folder.local_path)
            return f"{MANIFEST} is missing: it was not written to its end" if torn else ""
        present = dict(_files(folder))
        for name, entry in parsed(folder.read(MANIFEST, _LONGEST))["files"].items():
            if name not in present:
                return f"{name} is missing"
            if present[name] != entry["bytes"]:
                return f"{name} has {present[name]} bytes instead of {entry['bytes']}"
            if folder.is_local and entry["crc32"] and f"{_crc32(folder, name):08x}" != entry["crc32"]:
                return f"{name} is not what was written (its checksum differs)"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} cannot be read"
    except OSError as error:
        return f"it cannot be read: {' '.join(str(error).split())}"
    return ""


def _others_have_one(folder: Path) -> bool:
    """Whether there are older checkpoints of the run, and all have a manifest. (A newer one may not be whole yet.)"""
    found = []
    for other in folder.parent.parent.glob("*/checkpoint_*"):
        with contextlib.suppress(FileNotFoundError):  # another trial's, which may go at any time
            if other != folder and other.stat().st_mtime <= folder.stat().st_mtime:
                found.append((other / MANIFEST).exists())
    return bool(found) and all(found)


def size_of(folder: RunFolder) -> int:
    """Bytes of all files in ``folder``; 0 where it does not exist."""
    return sum(size for _, size in _files(folder)) if folder.exists() else 0


def _files(folder: RunFolder) -> Iterator[tuple[str, int]]:
    """Path below ``folder`` and size of each file but the manifest."""
    from pyarrow.fs import FileSelector, FileType

    for info in folder.filesystem.get_file_info(FileSelector(folder.path, recursive=True)):
        name = info.path[len(folder.path.rstrip("/")) + 1 :]
        if info.type == FileType.File and name != MANIFEST:
            yield name, info.size


def _crc32(folder: RunFolder, name: str) -> int:
    found = 0
    with folder.filesystem.open_input_stream((folder / name).path, compression=None) as stream:  # .gz as it lies there
        while chunk := stream.read(_CHUNK):
            found = zlib.crc32(chunk, found)
    return found
