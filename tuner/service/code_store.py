"""The code of searches, each bundle under the sha256 of its bytes: what has not changed is sent once."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import itertools
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import EnvironmentFailure, InputError
from tuner.jobs.code_bundle import MAX_BYTES
from tuner.jobs.record import CODE_LIST, list_code
from tuner.service.interface import SERVICE, Submission
from tuner.spec.quantities import format_bytes
from tuner.storage.folder import LONGEST_NAME, RunFolder, reason

MOST_FILES = 20_000
"""Of a bundle."""

_LONGEST_PATH = 1024
"""Bytes of a file's path below the root."""

_MOST_UNPACKED = MAX_BYTES + 2048 * MOST_FILES
"""Bytes of the archive without compression: each file has a header, and fills its last block."""

_CODE = "code"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BROKEN = (EOFError, tarfile.TarError, zlib.error, gzip.BadGzipFile, ValueError)


def pack(project: Path, files: Sequence[Path]) -> bytes:
    """The bundle of ``files``, relative to ``project``. The same files always make the same bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for file in sorted(files):
            data = (project / file).read_bytes()
            info = tarfile.TarInfo(str(file))
            info.size, info.mode = len(data), (project / file).stat().st_mode & 0o777
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=0)


class CodeStore:
    """The bundles of one storage.

    Example:
        >>> import hashlib, io
        >>> from pathlib import Path
        >>> from tuner.service.code_store import CodeStore, pack
        >>> from tuner.storage.folder import RunFolder
        >>> bundle = pack(Path.cwd(), [])
        >>> store, name = CodeStore(RunFolder.at("runs")), hashlib.sha256(bundle).hexdigest()
        >>> store.put(name, io.BytesIO(bundle))
        >>> store.has(name)
        True
    """

    def __init__(self, storage: RunFolder) -> None:
        self._folder = storage / SERVICE / _CODE

    def has(self, sha256: str) -> bool:
        """Whether there is such a bundle. Raises InputError if ``sha256`` cannot be one."""
        return self._folder.exists(_file(sha256))

    def put(self, sha256: str, file: io.BufferedIOBase) -> None:
        """Keeps a bundle, after it was checked.

        Args:
            sha256: Of its bytes, in 64 hexadecimal digits.
            file: Holds them, from its beginning.

        Raises:
            InputError: It has another sha256, holds something else than plain files below one folder, or is too large.
            EnvironmentFailure: The storage cannot be written.
        """
        name = _file(sha256)
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            raise InputError(f"code {sha256}: the sha256 of what came is {found}: was it cut off?")
        file.seek(0)
        with _reading(sha256):
            for _ in _members(file):
                pass
        file.seek(0)
        try:
            self._folder.filesystem.create_dir(self._folder.path, recursive=True)
            self._folder.write(name, file.read(), private=True)
        except OSError as error:
            raise EnvironmentFailure(f"{self._folder.location} cannot be written: {reason(error)}") from None

    def lay_out(self, submission: Submission, target: Path) -> str:
        """Puts the code of a search, and its experiment if that is text, below ``target``.

        Args:
            submission: The search.
            target: An empty folder.

        Returns:
            The experiment, as `tuner.jobs.driver` takes it in ``target``.

        Raises:
            InputError: There is no such bundle.
            EnvironmentFailure: The storage cannot be read.
        """
        names = [] if submission.code is None else self._unpack(submission.code, target)
        file = submission.file
        if submission.experiment is not None:
            file = next(name for name in _experiment_names() if not (target / name).exists())
            (target / file).write_text(submission.experiment, encoding="utf-8")
            names.append(file)
        list_code(target, names)
        assert file is not None
        return file

    def _unpack(self, sha256: str, target: Path) -> list[str]:
        try:
            data = self._folder.read(_file(sha256))
        except FileNotFoundError:
            raise InputError(f"code {sha256}: no such code here: send it first (PUT /v1/code/{sha256})") from None
        except OSError as error:
            raise EnvironmentFailure(f"{self._folder.location} cannot be read: {reason(error)}") from None
        names = []
        with _reading(sha256):
            for archive, member in _members(io.BytesIO(data)):
                archive.extract(member, target, filter="data")
                names.append(member.name)
        return names


@contextlib.contextmanager
def _reading(sha256: str) -> Iterator[None]:
    """Within: an archive is read. Raises InputError if it is none."""
    try:
        yield
    except _BROKEN as error:
        told = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"code {sha256}: no bundle of code (a .tar.gz of plain files): {told}") from None


class _Limited:
    """A stream that ends with ValueError after so many bytes as a bundle may have: a few bytes can hold terabytes."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream, self._left = stream, _MOST_UNPACKED

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"it is larger than {format_bytes(MAX_BYTES)} when unpacked")
        return data


def _members(file: io.BufferedIOBase) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """The plain files of an archive. Raises one of `_BROKEN` at anything else."""
    total, files, folders = 0, set[str](), set[str]()
    unzipped = gzip.GzipFile(fileobj=file, mode="rb")
    limited: Any = _Limited(unzipped)
    with unzipped, tarfile.open(fileobj=limited, mode="r|") as archive:
        for member in archive:
            total += member.size
            if total > MAX_BYTES or len(files) == MOST_FILES:
                raise ValueError(f"it holds more than {format_bytes(MAX_BYTES)}, or more than {MOST_FILES:,} files")
            parts = member.name.split("/")
            if _bytes(member.name) > _LONGEST_PATH or max(map(_bytes, parts)) > LONGEST_NAME:
                most = f"more than {_LONGEST_PATH:,} bytes, or of more than {LONGEST_NAME} between two slashes"
                raise ValueError(f"{member.name[:80]!r}… is a name of {most}")
            if parts[0] == CODE_LIST and len(parts) > 1:
                raise ValueError(f"{CODE_LIST!r} is a folder, and the name of a file that is written there")
            if not member.isreg() or member.name.startswith("/") or {"", ".", ".."} & set(parts):
                raise ValueError(f"{member.name!r} is something else than a plain file below its root")
            above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
            if member.name in files or member.name in folders or not files.isdisjoint(above):
                raise ValueError(f"{member.name!r} is there twice, or one of its folders is a file")
            files.add(member.name)
            folders |= above
            yield archive, member


def _bytes(name: str) -> int:
    return len(name.encode(errors="replace"))


def _experiment_names() -> Iterator[str]:
    yield "experiment.yaml"
    yield from (f"experiment-{number}.yaml" for number in itertools.count(1))


def _file(sha256: str) -> str:
    if not _SHA256.fullmatch(sha256):
        raise InputError(f"code {sha256[:80]!r}: name code by its sha256, 64 digits of 0-9 and a-f")
    return f"{sha256}.tar.gz"
