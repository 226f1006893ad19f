"""The files of a run folder as one stream, a tar archive, while the search may still write there."""

from __future__ import annotations

import os
import secrets
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from tuner.errors import EnvironmentFailure
from tuner.storage.folder import RunFolder, reason

_CHUNK = 2**18

_BROKEN = (EOFError, tarfile.TarError, ValueError)


def stream(folder: RunFolder) -> Iterator[bytes]:
    """A tar archive of all plain files of ``folder``, with paths below it.

    Each file is as it was when its turn came. Files that have gone by then are left out; those whose names start with a
    dot are being written. Raises OSError if the storage fails: the archive then has no end.
    """
    for name in _names(folder):
        try:
            file, size = _opened(folder / name)
        except FileNotFoundError:
            continue
        with file:
            info = tarfile.TarInfo(name)
            info.size = left = size
            info.mtime = 0
            yield info.tobuf(tarfile.PAX_FORMAT)
            while left:
                data = file.read(min(left, _CHUNK))
                if not data:
                    raise OSError(f"{name} became shorter while it was read")
                left -= len(data)
                yield data
            yield bytes(-info.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _opened(file: RunFolder) -> tuple[Any, int]:
    """A plain file, and its size. Raises FileNotFoundError if there is none, or a link."""
    if not file.is_local:
        stream = file.filesystem.open_input_file(file.path)
        return stream, stream.size()
    path = file.local_path
    if path.is_symlink() or not path.is_file():
        raise FileNotFoundError(path)
    opened = path.open("rb")  # not by pyarrow, which takes no name that is no UTF-8
    return opened, os.fstat(opened.fileno()).st_size


def unpack(archive: BinaryIO, target: Path) -> None:
    """Puts the files of such an archive below ``target``, each in the place of the one that is there.

    Raises EnvironmentFailure if the archive has no end, or something else than plain files in it.
    """
    try:
        with tarfile.open(fileobj=archive, mode="r|") as files:
            for member in files:
                if not member.isreg():
                    raise ValueError(f"{member.name!r} is something else than a plain file")
                _replace(files, tarfile.data_filter(member, str(target)), target)
    except _BROKEN as error:
        raise EnvironmentFailure(f"the copy is not complete: {' '.join(str(error).split())}; try again") from None


def _replace(files: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    place = target / member.name
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as written:
            shutil.copyfileobj(cast("BinaryIO", files.extractfile(member)), written)
            if written.tell() != member.size:
                raise ValueError(f"{member.name!r} was cut off")
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


def _names(folder: RunFolder) -> Iterator[str]:
    """Paths of the plain files below ``folder``, without those whose names start with a dot. Raises OSError."""
    if folder.is_local:
        root = folder.local_path
        for here, below, files in os.walk(root, onerror=_fail):
            below[:] = sorted(name for name in below if not name.startswith("."))
            yield from (str(Path(here, name).relative_to(root)) for name in sorted(files) if not name.startswith("."))
        return
    from pyarrow.fs import FileSelector, FileType

    for info in folder.filesystem.get_file_info(FileSelector(folder.path, recursive=True)):
        name = info.path[len(folder.path) :].strip("/")
        if info.type == FileType.File and not any(part.startswith(".") for part in name.split("/")):
            yield name


def _fail(error: OSError) -> None:
    if isinstance(error, FileNotFoundError):  # the folder of a checkpoint that was superseded
        return
    raise OSError(error.errno, f"{error.filename}: {reason(error)}")
