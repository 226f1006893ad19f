"""Folders on any file system that pyarrow knows, written so that a reader never sees half a file."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import InputError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

STORAGE = "runs"
"""The folder of run folders, where none is given."""


@dataclass(frozen=True)
class RunFolder:
    """A folder on any file system: a local path, or a URI that pyarrow reads (``s3://bucket/path?region=…``)."""

    filesystem: FileSystem
    path: str
    shown: str
    """How the user writes it."""

    @classmethod
    def at(cls, location: str | Path) -> RunFolder:
        """The folder at ``location``. Raises InputError when the URI cannot be read."""
        from pyarrow.fs import FileSystem, LocalFileSystem

        text = str(location)
        try:
            if "\0" in text:
                raise ValueError("a name cannot hold the character NUL")
            text.encode()
            if "://" not in text:
                return cls(LocalFileSystem(), str(Path(text).expanduser().absolute()), text)
            filesystem, path = FileSystem.from_uri(text)
        except (ValueError, OSError, RuntimeError) as error:  # RuntimeError: ~name of a user that there is not
            raise InputError(f"storage {text!r} cannot be used: {error}") from None
        return cls(filesystem, path, text)

    def __truediv__(self, name: str) -> RunFolder:
        place, options = _parts(self.shown)
        return RunFolder(self.filesystem, posixpath.join(self.path, name), posixpath.join(place, name) + options)

    @property
    def parent(self) -> RunFolder:
        """The folder that holds it."""
        place, options = _parts(self.shown)
        path, shown = (posixpath.dirname(text.rstrip("/")) for text in (self.path, place))
        return RunFolder(self.filesystem, path, (shown or path) + options)

    @property
    def is_local(self) -> bool:
        """Whether it lies on this machine's own file system."""
        from pyarrow.fs import LocalFileSystem

        return isinstance(self.filesystem, LocalFileSystem)

    @property
    def local_path(self) -> Path:
        """Its path, where `is_local`."""
        assert self.is_local
        return Path(self.path)

    @property
    def word(self) -> str:
        """As the user writes it in a command."""
        return shlex.quote(self.shown)

    def exists(self, name: str = "") -> bool:
        """Whether it, or ``name`` in it, is there."""
        from pyarrow.fs import FileType

        target = posixpath.join(self.path, name) if name else self.path
        return bool(self.filesystem.get_file_info(target).type != FileType.NotFound)

    def create(self) -> None:
        """Makes the folder and writes a file in it. Raises InputError when that is not possible."""
        try:
            self.filesystem.create_dir(self.path, recursive=True)
            self.write(".writable", b"")
            self.filesystem.delete_file(posixpath.join(self.path, ".writable"))
        except OSError as error:
            reason = str(error).replace("\n", " ")
            raise InputError(
                f"storage {self.shown!r} cannot be written: {reason}; choose another with --storage"
            ) from None

    @contextlib.contextmanager
    def created(self) -> Iterator[None]:
        """Creates it, as `create`; takes it away again where the block fails before anything was written to it."""
        from pyarrow.fs import FileSelector

        self.create()
        try:
            yield
        except BaseException:
            if not self.filesystem.get_file_info(FileSelector(self.path)):
                self.filesystem.delete_dir(self.path)
            raise

    def write(self, name: str, data: bytes) -> None:
        """Writes ``name`` so that a reader sees the old file or the whole new one."""
        target = posixpath.join(self.path, name)
        temporary = posixpath.join(posixpath.dirname(target), f".{posixpath.basename(target)}.new")
        with self.filesystem.open_output_stream(temporary, compression=None) as stream:
            stream.write(data)
        self.filesystem.move(temporary, target)

    def read(self, name: str, most: int | None = None) -> bytes:
        """What was written, byte for byte.

        Raises FileNotFoundError when there is no such file, OSError when it is a pipe, a device or a folder, which are
        never opened, or has more than ``most`` bytes.
        """
        from pyarrow.fs import FileType

        path = posixpath.join(self.path, name)
        if self.is_local and self.filesystem.get_file_info(path).type in (FileType.Directory, FileType.Unknown):
            raise OSError(f"{name} is no plain file")
        with self.filesystem.open_input_file(path) as file:
            if most is not None and file.size() > most:
                raise OSError(f"{name} has {file.size()} bytes, and at most {most} are read")
            return bytes(file.read())

    def delete(self, name: str) -> None:
        """Deletes a folder, if it exists."""
        if self.exists(name):
            self.filesystem.delete_dir(posixpath.join(self.path, name))

    def rename(self, name: str, new: str) -> None:
        """Gives a folder another name, in place of the folder that has it.

        At once on a file system; an object store knows no folders: their files are copied.
        """
        self.delete(new)
        if self.is_local:
            self.filesystem.move((self / name).path, (self / new).path)
        else:
            (self / name).copy_to(self / new)
            self.delete(name)

    def folders(self) -> list[str]:
        """Names of the folders in it; none if it does not exist."""
        from pyarrow.fs import FileSelector, FileType

        if not self.exists():
            return []
        if self.is_local:  # which pyarrow cannot list where a name is no UTF-8
            with os.scandir(self.path) as entries:
                return sorted(entry.name for entry in entries if _is_folder(entry))
        infos = self.filesystem.get_file_info(FileSelector(self.path))
        return sorted(info.base_name for info in infos if info.type == FileType.Directory)

    def copy_to(self, target: RunFolder) -> None:
        """Copies all files, with their folders, to ``target``."""
        from pyarrow.fs import copy_files

        target.filesystem.create_dir(target.path, recursive=True)
        copy_files(self.path, target.path, source_filesystem=self.filesystem, destination_filesystem=target.filesystem)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is one whose name can be written down."""
    try:
        entry.name.encode()
        return entry.is_dir()
    except (UnicodeEncodeError, OSError):  # OSError: a link in a circle
        return False


def reason(error: OSError) -> str:
    """Why a file or a folder could not be used, in one line."""
    return os.strerror(error.errno) if error.errno else " ".join(str(error).split())


def _parts(shown: str) -> tuple[str, str]:
    """A URI's place, and its options (``?endpoint_override=…``), which hold for all below it."""
    place, mark, options = shown.partition("?") if "://" in shown else (shown, "", "")
    return place, mark + options
