"""One process at a time works on a run folder."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from tuner.errors import InputError
from tuner.storage import RunFolder
from tuner.untrusted import parsed

LOCK = "run.lock"

STALE_AFTER_S = 60.0
"""A lock on an object store, which no kernel takes away from a dead process, is renewed more often than that."""

_LOOK_EVERY_S = 0.2


class Lock:
    """Held by this process; on object stores only as long as `renew` is called."""

    def __init__(self, folder: RunFolder, name: str = LOCK) -> None:
        self._folder = folder
        self._name = name
        self._renewed = 0.0
        self.renew()

    def renew(self) -> None:
        """Says again that this process is alive, where nobody else would know."""
        if not self._folder.is_local and time.monotonic() > self._renewed + STALE_AFTER_S / 4:
            self._folder.write(self._name, _holder())
            self._renewed = time.monotonic()


@contextlib.contextmanager
def locked(folder: RunFolder, name: str = LOCK, patience: float = 0.0) -> Iterator[Lock]:
    """Within: no other process gets the lock ``name`` of ``folder``, unless this one dies.

    Raises InputError where one still has it after ``patience`` seconds. On a local file system the kernel holds the
    lock, and drops it with the process, however that ends.
    """
    acquire = _from_kernel if folder.is_local else _by_object
    give_up = time.monotonic() + patience
    while True:
        try:
            release = acquire(folder, name)
            break
        except InputError:
            if time.monotonic() >= give_up:
                raise
        time.sleep(_LOOK_EVERY_S)
    try:
        yield Lock(folder, name)
    finally:
        release()


def _from_kernel(folder: RunFolder, name: str) -> Callable[[], None]:
    import fcntl

    file = os.open(folder.local_path / name, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held = os.read(file, 4096)
        os.close(file)
        raise _taken(folder, held) from None
    os.ftruncate(file, 0)
    os.pwrite(file, _holder(), 0)
    return lambda: os.close(file)


def _by_object(folder: RunFolder, name: str) -> Callable[[], None]:
    if folder.exists(name):
        held = folder.read(name)
        if _is_fresh(_read(held)):
            raise _taken(folder, held)
    return lambda: folder.filesystem.delete_file((folder / name).path)


def holder(folder: RunFolder) -> dict[str, Any] | None:
    """``pid``, ``host`` and ``time`` of the process that works on ``folder``; None where none does.

    Only looks: the folder may be one in which this process may not write.
    """
    if not folder.exists(LOCK):
        return None
    if not folder.is_local:
        held = _read(folder.read(LOCK))
        return held if _is_fresh(held) else None
    import fcntl

    file = os.open(folder.local_path / LOCK, os.O_RDONLY | os.O_NONBLOCK)  # which does not wait at a pipe
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _read(os.read(file, 4096))
    finally:
        os.close(file)
    return None


def _is_fresh(held: dict[str, Any]) -> bool:
    """Whether it was renewed lately."""
    return bool(time.time() < held.get("time", 0.0) + STALE_AFTER_S)


def _holder() -> bytes:
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "time": time.time()}).encode()


def _read(text: bytes) -> dict[str, Any]:
    try:
        found = parsed(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _taken(folder: RunFolder, held: bytes) -> InputError:
    by = _read(held)
    who = f"process {by['pid']} on {by['host']}" if "pid" in by else "another process"
    return InputError(f"{folder.shown}: {who} works on this run: wait for its end, or end it (it stops on SIGINT)")
