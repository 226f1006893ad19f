"""Stops a search that runs on this machine. The lock of its run folder names its process."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import psutil

from tuner.errors import EnvironmentFailure, InputError
from tuner.storage.folder import RunFolder
from tuner.storage.lock import LOCK, holder

_LOOK_EVERY_S = 0.2
_CLOCK_S = 2.0
"""What the start of a process may be off from the time that it wrote down itself."""


def stop(folder: RunFolder, say: Callable[[str], None]) -> bool:
    """Interrupts the process that works on ``folder``, as Ctrl-C does, and waits for its end.

    False if no process works on it. Raises InputError if that process is on another host, and EnvironmentFailure if it
    cannot be found, is not the one that holds the lock, or belongs to another user.
    """
    held = holder(folder)
    if held is None:
        return False
    process = _owner(folder, held)
    try:
        process.send_signal(signal.SIGINT)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        raise _not_ours(folder, process) from None
    say(f"process {process.pid} stops; its running trials continue to their next checkpoint. Again: it stops at once")
    while _works(process) and _same(holder(folder), held):
        time.sleep(_LOOK_EVERY_S)
    return True


def _owner(folder: RunFolder, held: dict[str, Any]) -> psutil.Process:
    """The process that ``held``, the content of the lock, names; checked to be the one that has it."""
    pid, host, here = held.get("pid"), held.get("host"), socket.gethostname()
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0 or not isinstance(host, str):
        raise EnvironmentFailure(f"{(folder / LOCK).location} does not name the process that works on this run")
    if host != here:
        command = f"python -m tuner stop {folder.quoted}"
        raise InputError(
            f"{folder.location}: process {pid} on {host} works on this run, and this is {here}: on {host}, {command}"
        )
    try:
        process = psutil.Process(pid)
        if not _has(process, folder, held):
            raise EnvironmentFailure(
                f"{folder.location}: process {pid} on this host ({process.name()}) does not hold the lock of this run: "
                f"it was not stopped; the search may run in a container of its own"
            )
    except psutil.NoSuchProcess:
        remedy = "it has just ended, or runs in a container of its own"
        raise EnvironmentFailure(
            f"{folder.location}: process {pid}, which works on this run, is not to be found: {remedy}"
        ) from None
    except psutil.AccessDenied:
        raise _not_ours(folder, psutil.Process(pid)) from None
    return process


def _has(process: psutil.Process, folder: RunFolder, held: dict[str, Any]) -> bool:
    """Whether it is ``process`` that holds the lock, and no later one that got its number.

    On a local file system the owner has the lock's file open. In an object store it renews its claim, which tells when
    it last did: a process that is older than that, and has the number, is the owner.
    """
    if folder.is_local:
        lock = (folder / LOCK).local_path.resolve()
        return any(file.path == str(lock) for file in process.open_files())
    return bool(process.create_time() <= float(held.get("time", 0.0)) + _CLOCK_S)


def _not_ours(folder: RunFolder, process: psutil.Process) -> EnvironmentFailure:
    whose = f"process {process.pid}, which works on this run, belongs to user {process.username()}"
    return EnvironmentFailure(f"{folder.location}: {whose}: only that user can stop it")


def _works(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _same(now: dict[str, Any] | None, before: dict[str, Any]) -> bool:
    return now is not None and now.get("owner") == before.get("owner")
