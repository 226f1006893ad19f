"""Whether this machine has the room, the limits and the network that a search needs."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tuner.doctor.finding import Finding, Level
from tuner.errors import InputError
from tuner.execution.auth import TOKEN, open_to_others
from tuner.plan.cluster import format_resources, this_machine
from tuner.spec.quantities import format_bytes
from tuner.storage.folder import RunFolder

GIB = 2**30
DISK_WARNING, DISK_ERROR = 5 * GIB, 1 * GIB
SHARED_MEMORY_WARNING = GIB // 2
MEMORY_WARNING = 2 * GIB
OPEN_FILES = 4096
CLOCK_SKEW_S = 5.0


def processor_and_memory() -> Finding:
    """What trials may use of this machine, as `run` counts it."""
    resources = this_machine().nodes[0].resources
    found = f"for trials: {format_resources({name: resources[name] for name in ('CPU', 'memory')})}"
    if resources["memory"] < MEMORY_WARNING:
        remedy = "a process that imports torch and Ray takes 0.5 GiB: set resources.max_concurrent_trials: 1"
        return Finding("warning", "cpu, memory", found, remedy)
    return Finding("ok", "cpu, memory", found)


def disk(folder: RunFolder, needed: float = DISK_ERROR) -> Finding:
    """Free space where run folders are written; less than ``needed`` bytes is an error."""
    if not folder.is_local:
        return Finding("ok", "disk", f"{folder.location} is not on this machine: its free space is not known")
    free = shutil.disk_usage(_existing(folder.local_path)).free
    level: Level = "error" if free < needed else "warning" if free < DISK_WARNING else "ok"
    remedy = "" if level == "ok" else "make room, or choose another folder with --storage"
    return Finding(level, "disk", f"{format_bytes(free)} free at {folder.location}", remedy)


def _existing(path: Path) -> Path:
    """``path``, or the nearest folder above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def storage_writable(folder: RunFolder) -> Finding:
    """Whether a run folder can be made; nothing stays behind, not even a storage folder where there was none."""
    probe = replace(folder / f".doctor-{os.getpid()}", location=folder.location)
    made = probe
    while (above := replace(made, path=posixpath.dirname(made.path))) != made and not above.exists():
        made = above
    try:
        probe.create()
    except InputError as error:
        return Finding("error", "storage", str(error).rpartition("; ")[0], "choose another with --storage")
    finally:
        if made.exists():
            made.filesystem.delete_dir(made.path)
    return Finding("ok", "storage", f"{folder.location} can be written")


def shared_memory(folder: Path = Path("/dev/shm")) -> Finding:
    """Room for Ray's object store and for the batches of torch's data loaders."""
    if not folder.is_dir():
        return Finding("ok", "shared memory", f"no {folder} on this system: Ray uses files")
    room = shutil.disk_usage(folder)
    found = f"{format_bytes(room.free)} of {format_bytes(room.total)} free in {folder}"
    if room.free < SHARED_MEMORY_WARNING:
        remedy = "data loaders with workers die without it, and Ray writes files: docker run --shm-size=2g, or free it"
        return Finding("warning", "shared memory", found, remedy)
    return Finding("ok", "shared memory", found)


def open_files() -> Finding:
    """The limit on open files: each process of Ray holds dozens."""
    try:
        import resource
    except ImportError:  # Windows
        return Finding("ok", "open files", "this system has no such limit")
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < OPEN_FILES:
        hard = "" if most == resource.RLIM_INFINITY or most >= OPEN_FILES else f" (as root: the hard limit is {most})"
        return Finding("warning", "open files", f"at most {limit} a process", f"ulimit -n 65536{hard}")
    return Finding(
        "ok", "open files", f"at most {limit if limit != resource.RLIM_INFINITY else 'any number'} a process"
    )


def ports() -> Finding:
    """Whether a server can be reached at loopback and at this machine's own address, where Ray's servers listen."""
    addresses = list(dict.fromkeys(["127.0.0.1", _own_address()]))
    for address in addresses:
        try:
            with socket.create_server((address, 0)) as server:
                socket.create_connection(server.getsockname(), timeout=5).close()
        except OSError as error:
            remedy = "Ray's processes talk over it: look at the firewall, the VPN and the container's network"
            return Finding("error", "ports", f"no server can be reached at {address}: {error}", remedy)
    return Finding("ok", "ports", f"servers can be reached at {' and '.join(addresses)}")


def token() -> Finding:
    """Whether others may read Ray's token: who has it runs code as this user."""
    if found := open_to_others():
        names = " and ".join(map(str, found))
        remedy = "chmod -R go= ~/.ray; where others may have read it, delete the token: a search makes another"
        return Finding("warning", "token", f"{names}: open to other users of this machine", remedy)
    there = Path(TOKEN).expanduser().exists()
    return Finding("ok", "token", f"{TOKEN} is yours alone" if there else f"no {TOKEN} yet: a search makes one")


def _own_address() -> str:
    """The address from which this machine would send; loopback where it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # a datagram socket only looks up the route: nothing is sent
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def clock(folder: RunFolder, now: Callable[[], float] = time.time) -> Finding:
    """Whether the time is later than that of tuner's own files, and that of the storage's file system."""
    shown = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(now()))
    remedy = "set the clock (timedatectl set-ntp true): run names, certificates and s3 requests depend on it"
    newest = max(file.stat().st_mtime for file in Path(__file__).parent.glob("*.py"))
    if now() < newest - CLOCK_SKEW_S:
        return Finding("warning", "clock", f"{shown}, earlier than tuner's own files", remedy)
    if folder.is_local:
        with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=_existing(folder.local_path)) as file:
            skew = os.fstat(file.fileno()).st_mtime - now()  # a file server keeps its own time
            if abs(skew) > CLOCK_SKEW_S:
                return Finding("warning", "clock", f"{shown}, {skew:+.0f} s off the clock of {folder.location}", remedy)
    return Finding("ok", "clock", shown)
