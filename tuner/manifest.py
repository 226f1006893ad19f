"""The manifest of a checkpoint: its files with their sizes and checksums, which tell whether it is whole."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

from tuner.storage import RunFolder
from tuner.untrusted import parsed

MANIFEST = ".manifest.json"
"""Its name in the folder of the checkpoint."""

_CHUNK = 2**20


def write_manifest(folder: RunFolder) -> None:
    """Notes what is in ``folder``, for `damage`; replaces a manifest that is there.

    On a remote file system it holds sizes only: reading all of it again would take as long as writing it.
    """
    files = {
        name: {"bytes": size, "crc32": f"{_crc32(folder, name):08x}" if folder.is_local else None}
        for name, size in _files(folder)
    }
    folder.write(MANIFEST, (json.dumps({"files": files}, indent=1) + "\n").encode())


def damage(folder: RunFolder) -> str:
    """What is wrong with the checkpoint in ``folder``, in words; empty where nothing is.

    One without a manifest, of an older run, is taken as it is. On a remote file system, which keeps checksums itself,
    only names and sizes are compared.
    """
    try:
        if not folder.exists():
            return "it is gone"
        if not folder.exists(MANIFEST):
            return ""
        present = dict(_files(folder))
        for name, entry in parsed(folder.read(MANIFEST))["files"].items():
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
