"""Folders on any file system that pyarrow knows, written so that a reader never sees half a file."""

from __future__ import annotations

import contextlib
import os
import posixpath
import secrets
import shlex
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import EnvironmentFailure, InputError
from tuner.redaction import has_secret, redacted

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

STORAGE = "runs"
"""The folder of run folders, where none is given."""

_WHOLE_OBJECTS = ("s3", "gcs")
"""File systems on which a file appears when its upload is completed. A writer that is killed leaves nothing."""

LONGEST_NAME = 255
"""Bytes of the name of a file or folder, on most file systems."""


@dataclass(frozen=True)
class RunFolder:
    """A folder on any file system: a local path, or a URI that pyarrow reads (``s3://bucket/path?region=…``)."""

    filesystem: FileSystem
    path: str
    location: str
    """As the user writes it, and as `at` takes it."""

    @classmethod
    def at(cls, location: str | Path) -> RunFolder:
        """The folder at ``location``. Raises InputError when the URI cannot be read, or holds a password."""
        from pyarrow.fs import FileSystem, LocalFileSystem

        text = without_password(str(location))
        try:
            if "\0" in text:
                raise ValueError("a name cannot hold the character NUL")
            text.encode()
            if "://" not in text:
                return cls(LocalFileSystem(), str(Path(text).expanduser().absolute()), text)
            filesystem, path = FileSystem.from_uri(text)
        except (ValueError, OSError, RuntimeError) as error:  # RuntimeError: ~name of a user that there is not
            raise InputError(f"storage {text!r} cannot be used: {redacted(str(error))}") from None
        return cls(filesystem, path, text)

    def __truediv__(self, name: str) -> RunFolder:
        place, options = _parts(self.location)
        return RunFolder(self.filesystem, posixpath.join(self.path, name), posixpath.join(place, name) + options)

    @property
    def parent(self) -> RunFolder:
        """The folder that holds it."""
        place, options = _parts(self.location)
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
    def quoted(self) -> str:
        """As the user writes it in a command."""
        return shlex.quote(self.location)

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
                f"storage {self.location!r} cannot be written: {reason}; choose another with --storage"
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

    def write(self, name: str, data: bytes, private: bool = False) -> None:
        """Writes ``name`` so that a reader sees the old file or the whole new one, and follows no link.

        ``private``: nobody else may read it (on a local file system). Raises OSError.
        """
        target = posixpath.join(self.path, name)
        if self.is_local:
            _replace(Path(target), data, 0o600 if private else 0o666)
        elif self.filesystem.type_name in _WHOLE_OBJECTS:
            self._upload(target, data)
        else:
            temporary = _temporary(target)
            self._upload(temporary, data)
            self.filesystem.move(temporary, target)

    def _upload(self, path: str, data: bytes) -> None:
        """Writes a file of a file system that is not local.

        A stream is completed when it is closed, also by an exception. So a thread writes it: Ctrl-C raises in the main
        thread alone, and could leave an empty file.
        """

        def upload() -> None:
            with self.filesystem.open_output_stream(path, compression=None) as stream:
                stream.write(data)

        with ThreadPoolExecutor(1) as thread:
            thread.submit(upload).result()

    def read(self, name: str, most: int | None = None) -> bytes:
        """What was written, byte for byte.

        Raises FileNotFoundError when there is no such file, OSError when it is a pipe, a device or a folder, which are
        never opened, or has more than ``most`` bytes.
        """
        with self._opened(name) as file:
            if most is not None and file.size() > most:
                raise OSError(f"{name} has {file.size()} bytes, and at most {most} are read")
            return bytes(file.read())

    def read_part(self, name: str, start: int | None, most: int) -> tuple[bytes, int]:
        """At most ``most`` bytes of a file from byte ``start`` on, and where they begin; None: the last ones.

        Raises as `read`.
        """
        with self._opened(name) as file:
            size = file.size()
            begin = max(0, size - most) if start is None else min(start, size)
            return bytes(file.read_at(min(most, size - begin), begin)), begin

    def _opened(self, name: str) -> Any:
        """A file to be read. Raises as `read`."""
        from pyarrow.fs import FileType

        path = posixpath.join(self.path, name)
        if self.is_local and self.filesystem.get_file_info(path).type in (FileType.Directory, FileType.Unknown):
            raise OSError(f"{name} is not a plain file")
        return self.filesystem.open_input_file(path)

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

    def files(self) -> list[str]:
        """Names of the plain files in it, without those that are being written; none if it does not exist."""
        from pyarrow.fs import FileSelector, FileType

        infos = self.filesystem.get_file_info(FileSelector(self.path, allow_not_found=True))
        names = (info.base_name for info in infos if info.type == FileType.File)
        return sorted(name for name in names if not name.startswith("."))

    def names(self) -> list[str]:
        """Names of all that is in it; none if it does not exist."""
        from pyarrow.fs import FileSelector

        if self.is_local:  # which pyarrow cannot list if a name is no UTF-8
            return sorted(path.name for path in self.local_path.iterdir()) if self.exists() else []
        infos = self.filesystem.get_file_info(FileSelector(self.path, allow_not_found=True))
        return sorted(info.base_name for info in infos)

    def subfolders(self) -> dict[str, list[str]]:
        """Of each folder in it that holds folders: their names. An object store is asked once, a thousand at a time."""
        from pyarrow.fs import FileSelector, FileType

        if self.is_local:
            return {name: names for name in self.folders() if (names := (self / name).folders())}
        found: dict[str, set[str]] = {}
        for info in self.filesystem.get_file_info(FileSelector(self.path, allow_not_found=True, recursive=True)):
            parts = info.path[len(self.path) :].strip("/").split("/")
            if len(parts) > 2 or (len(parts) == 2 and info.type == FileType.Directory):
                found.setdefault(parts[0], set()).add(parts[1])
        return {name: sorted(names) for name, names in found.items()}

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


def without_password(location: str) -> str:
    """``location``. Raises InputError if it is a URI with a password or key: files and `ps` would show it."""
    if "://" in location and has_secret(location):
        remedy = "write it without, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what your store reads"
        raise InputError(f"storage {redacted(location, whole=True)!r} holds a password or key: {remedy}")
    return location


def _temporary(target: str) -> str:
    """A name in the same folder that nobody else uses or can guess."""
    folder, name = posixpath.split(target)
    return posixpath.join(folder, f".{name}.{secrets.token_hex(8)}")


def _replace(target: Path, data: bytes, mode: int) -> None:
    """Puts a new file with ``data`` in the place of ``target``; the umask narrows ``mode``."""
    temporary = Path(_temporary(str(target)))
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(file, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink()
        raise


def write_file(target: str, data: bytes) -> None:
    """Writes the file that a user names as output, a path or a URI.

    A link is followed. If the path is a pipe or a device, ``data`` is written into it. Raises OSError.
    """
    if "://" in target:
        folder, _, name = target.rpartition("/")
        RunFolder.at(folder).write(name, data)
        return
    path = Path(target).expanduser()
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            stream.write(data)
    else:
        _replace(path.resolve(), data, 0o666)


def open_own(path: Path, flags: int) -> int:
    """A descriptor of a file in a run folder, which is made where it is missing (with O_CREAT in ``flags``).

    Raises EnvironmentFailure if a link or no regular file lies there: what is written would go elsewhere. Raises
    OSError as `os.open`.
    """
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise _not_ours(path) from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _not_ours(path)
    return file


def _not_ours(path: Path) -> EnvironmentFailure:
    return EnvironmentFailure(f"{path}: a link or no regular file, which tuner does not write to; delete it")
