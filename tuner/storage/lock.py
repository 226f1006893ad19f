"""One process at a time works on a run folder.

On a local file system the kernel holds the lock, and drops it with the process, however that ends.

An object store has no such lock. There the lock is a folder. A process that wants it first writes a claim, an object of
its own in that folder, and then lists the folder. If it finds the claim of another live process, it withdraws its own.
Of two processes that come at the same moment at least one sees the other. Both may: then both withdraw.

The owner renews its claim from a thread. The next process that wants the lock deletes a claim that was not renewed for
`STALE_AFTER_S`. An owner whose claim is gone has lost the lock, even if it was only suspended. All ages are differences
between times of the store's own clock: the hosts' clocks may be hours off.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tuner.errors import EnvironmentFailure, InputError, LockLost
from tuner.storage.folder import RunFolder, open_own
from tuner.storage.untrusted_json import parsed

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

LOCK = "run.lock"

STALE_AFTER_S = 60.0
"""A claim in an object store, which no kernel takes away from a dead process, is renewed more often than that."""

CHECK_EVERY_S = 1.0
"""How often `Lock.renew` asks the storage at most."""

_LOOK_EVERY_S = 0.2
_RENEW_EVERY_S = STALE_AFTER_S / 4
_TRIES, _TRY_EVERY_S = 5, 0.02
"""A local lock is tried so often: `holder` has it for a moment while it looks."""

_CONTENT_BYTES = 4096
"""Of the text of an owner, at most."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


class Lock(abc.ABC):
    """Held by this process, until `check` raises."""

    def __init__(self, folder: RunFolder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._owner = uuid.uuid4().hex
        self._checked = _awake()
        self._lost: LockLost | None = None

    def renew(self) -> None:
        """As `check`, but asks the storage every `CHECK_EVERY_S` only. Call it as often as you like."""
        if self._lost or _awake() >= self._checked + CHECK_EVERY_S:
            self.check()

    def check(self) -> None:
        """Raises LockLost if another process has the lock now, and OSError if the storage does not answer."""
        if self._lost is None and not self._is_ours():
            self._lose()
        if self._lost:
            raise self._lost
        self._checked = _awake()

    @abc.abstractmethod
    def release(self) -> None:
        """Gives the lock back, if it is still ours."""

    @abc.abstractmethod
    def _is_ours(self) -> bool:
        """Whether what this process wrote is still there."""

    @abc.abstractmethod
    def _others(self) -> bytes:
        """The text that the lock's owner wrote; empty if it is not known."""

    def _lose(self) -> None:
        now = _who(self._others())
        self._lost = LockLost(
            f"{self._folder.location}: {now} has taken {self._name} over. This process ({os.getpid()} on "
            f"{socket.gethostname()}) stood still or lost its storage, and writes nothing more there"
        )

    def _content(self) -> bytes:
        told = {"owner": self._owner, "pid": os.getpid(), "host": socket.gethostname(), "time": time.time()}
        return json.dumps(told).encode()


class _Taken(InputError):
    """Another process has the lock."""

    def __init__(self, folder: RunFolder, held: bytes) -> None:
        remedy = f"wait for its end, or stop it: python -m tuner stop {folder.quoted}"
        super().__init__(f"{folder.location}: {_who(held)} works on this run: {remedy}")


@contextlib.contextmanager
def locked(folder: RunFolder, name: str = LOCK, patience: float = 0.0) -> Iterator[Lock]:
    """Within: no other process gets the lock ``name`` of ``folder``, unless this one dies or stands still.

    Raises InputError if one still has it after ``patience`` seconds, and EnvironmentFailure where the storage cannot
    be locked.
    """
    give_up = time.monotonic() + patience
    while True:
        try:
            lock = _FileLock(folder, name) if folder.is_local else _Claim(folder, name)
            break
        except _Taken:
            if time.monotonic() >= give_up:
                raise
        except OSError as error:
            raise _unusable(folder / name, error) from None
        time.sleep(_LOOK_EVERY_S)
    try:
        yield lock
    finally:
        lock.release()


class _FileLock(Lock):
    """Held by the kernel."""

    def __init__(self, folder: RunFolder, name: str) -> None:
        super().__init__(folder, name)
        self._path = folder.local_path / name
        self._file = open_own((folder / name).local_path, os.O_RDWR | os.O_CREAT)
        try:
            self._acquire()
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, self._content(), 0)
        except BaseException:
            os.close(self._file)
            raise

    def _acquire(self) -> None:
        import fcntl

        for left in reversed(range(_TRIES)):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if not left:
                    raise _Taken(self._folder, os.pread(self._file, _CONTENT_BYTES, 0)) from None
                time.sleep(_TRY_EVERY_S)

    def release(self) -> None:
        os.close(self._file)

    def _is_ours(self) -> bool:
        """Not if the file was deleted, or a server gave the lock away: another process writes its own id then."""
        self._path.parent.stat()  # if the whole folder is gone, it is the storage that fails
        try:
            found = self._path.lstat()
        except FileNotFoundError:
            return False
        same = os.path.samestat(found, os.fstat(self._file))
        return same and _read(os.pread(self._file, _CONTENT_BYTES, 0)).get("owner") == self._owner

    def _others(self) -> bytes:
        with contextlib.suppress(OSError):
            return self._path.read_bytes()
        return b""


class _Claim(Lock):
    """An object in the lock's folder, renewed from a thread."""

    def __init__(self, folder: RunFolder, name: str) -> None:
        super().__init__(folder, name)
        self._place = folder / claims_of(name)
        self._place.filesystem.create_dir(self._place.path)
        self._place.write(self._owner, self._content())
        try:
            self._settle()
        except BaseException:
            self._withdraw()
            raise
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"tuner_{name}", daemon=True)
        self._thread.start()

    def _settle(self) -> None:
        """Deletes the claims of dead processes. Raises _Taken if one is alive."""
        claims = _claims(self._place)
        if (ours := claims.pop(self._owner, None)) is None:  # this process stood still, and was taken for dead
            raise _Taken(self._folder, b"")
        for owner, claim in claims.items():
            if ours.mtime_ns - claim.mtime_ns < STALE_AFTER_S * 1e9:
                raise _Taken(self._folder, _content_of(self._place, owner))
        for claim in claims.values():
            with contextlib.suppress(FileNotFoundError):
                self._place.filesystem.delete_file(claim.path)

    def _keep(self) -> None:
        """In a thread: renews the claim until it is released or lost."""
        while not self._released.wait(_RENEW_EVERY_S) and self._lost is None:
            with contextlib.suppress(OSError):  # the storage fails for a while: the next time may do
                self._renew_claim()

    def _renew_claim(self) -> None:
        """Writes the claim again if it is still there.

        If this process stood still in between, its claim may have been deleted as that of a dead one: the one that it
        has just written then means nothing, and is withdrawn.
        """
        looked = _awake()
        if not self._is_ours():
            self._lose()
            return
        self._place.write(self._owner, self._content())
        if _awake() > looked + STALE_AFTER_S / 2:
            self._withdraw()
            self._lose()

    def release(self) -> None:
        self._released.set()
        self._thread.join()
        if self._lost is None:
            self._withdraw()

    def _withdraw(self) -> None:
        with contextlib.suppress(OSError):  # it becomes stale
            self._place.filesystem.delete_file((self._place / self._owner).path)

    def _is_ours(self) -> bool:
        return self._place.exists(self._owner)

    def _others(self) -> bytes:
        claims = _claims(self._place)
        claims.pop(self._owner, None)
        return _content_of(self._place, _latest(claims)) if claims else b""


def claims_of(name: str) -> str:
    """Name of the folder in which an object store holds the claims on the lock ``name``."""
    return f"{name}.d"  # earlier versions had one object of the lock's own name


def holder(folder: RunFolder, *, surely: bool = False) -> dict[str, Any] | None:
    """``pid``, ``host`` and ``time`` of the process that works on ``folder``; None if none does, or none is known.

    Only looks: the folder may be one in which this process may not write. In an object store it therefore compares the
    store's clock with that of this host, as good as that is; `locked` does not. Raises OSError if an object store
    fails, and with ``surely`` if a file system does.
    """
    if folder.is_local:
        try:
            return _locked_by(folder / LOCK) if folder.exists(LOCK) else None
        except OSError:
            if surely:
                raise
            return None
    place = folder / claims_of(LOCK)
    claims = _claims(place)
    if not claims or time.time() - claims[_latest(claims)].mtime_ns / 1e9 > STALE_AFTER_S:
        return None
    return _read(_content_of(place, _latest(claims)))


def last_holder(folder: RunFolder) -> dict[str, Any]:
    """``pid``, ``host`` and ``time`` of the process that had the lock last; empty if its file does not tell."""
    try:
        return _read(folder.read(LOCK, _CONTENT_BYTES))
    except (OSError, ValueError):
        return {}


def _locked_by(place: RunFolder) -> dict[str, Any] | None:
    import fcntl

    try:
        file = open_own(place.local_path, os.O_RDONLY)
    except (FileNotFoundError, EnvironmentFailure):
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(os.read(file, _CONTENT_BYTES))
    except OSError as error:
        if error.errno not in _NO_LOCKS:  # where nothing can be locked, no search runs
            raise
    finally:
        os.close(file)
    return None


def _unusable(place: RunFolder, error: OSError) -> EnvironmentFailure:
    if error.errno in _NO_LOCKS:
        reason = f"its file system locks no files ({os.strerror(error.errno)})"
        remedy = "mount it with locks (NFS: run lockd, no `nolock`; Lustre: -o flock), or choose another --storage"
        return EnvironmentFailure(f"{place.location} cannot be locked: {reason}: {remedy}")
    return EnvironmentFailure(f"{place.location} cannot be locked: {' '.join(str(error).split())}")


def _claims(place: RunFolder) -> dict[str, FileInfo]:
    """What is known of the claims in ``place`` without reading them, by owner."""
    from pyarrow.fs import FileSelector, FileType

    infos = place.filesystem.get_file_info(FileSelector(place.path, allow_not_found=True))
    return {info.base_name: info for info in infos if info.type == FileType.File and "." not in info.base_name}


def _latest(claims: dict[str, FileInfo]) -> str:
    return max(claims, key=lambda owner: claims[owner].mtime_ns)


def _content_of(place: RunFolder, owner: str) -> bytes:
    """What the owner of a claim wrote; empty if it has just withdrawn it."""
    with contextlib.suppress(FileNotFoundError):
        return place.read(owner)
    return b""


def _awake() -> float:
    """Seconds on a clock that also runs while this machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _read(text: bytes) -> dict[str, Any]:
    try:
        found = parsed(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _who(held: bytes) -> str:
    by = _read(held)
    return f"process {by['pid']} on {by['host']}" if {"pid", "host"} <= by.keys() else "another process"
