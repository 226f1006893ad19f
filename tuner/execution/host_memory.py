"""Host memory of this process and of its child processes, from Linux's ``/proc``; elsewhere what psutil knows.

The peak is the kernel's own (VmHWM), so that nothing is missed between two looks. It counts from the start of the
process, which may have run other trials: `reset_peak` begins it anew. It writes the process's own ``clear_refs``, which
needs no privilege and works in a container.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HostMemory:
    """In bytes."""

    held: int
    """Without pages of files, such as libraries and memory-mapped data, which the kernel takes back at need."""
    resident: int
    peak: int
    """Most that was resident since `reset_peak`, or since the process began; 0 if that is not known."""


def reset_peak() -> bool:
    """Lets the peak of this process begin anew; False if the system cannot."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:  # another system, or a kernel without it
        return False
    return True


def own_memory() -> HostMemory:
    """Of this process alone."""
    try:
        known = _numbers("/proc/self/status")
    except OSError:
        import psutil

        resident = int(psutil.Process().memory_info().rss)
        return HostMemory(resident, resident, 0)
    resident = known.get("VmRSS", 0)
    return HostMemory(resident - known.get("RssFile", 0), resident, known.get("VmHWM", 0))


def has_children() -> bool:
    """Whether this process has started others that are not waited for: one call of the kernel."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def memory_of_children() -> int:
    """Bytes that only the child processes, and theirs, hold; 0 if the system does not report it.

    Pages that they share with this process, as the data loader's workers do, count here only once.
    """
    total = 0
    left = _children(os.getpid()) if has_children() else []
    while left:
        child = left.pop()
        with contextlib.suppress(OSError):  # it has ended meanwhile
            known = _numbers(f"/proc/{child}/smaps_rollup")
            total += known.get("Private_Clean", 0) + known.get("Private_Dirty", 0)
            left += _children(child)
    return total


def _children(process: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # no /proc, or the process has ended
        for thread in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found


def _numbers(path: str) -> dict[str, int]:
    """The sizes in a file of /proc, in bytes by name."""
    with open(path, "rb") as file:
        lines = [line.split() for line in file.read().splitlines()]
    return {line[0][:-1].decode(): 1024 * int(line[1]) for line in lines if len(line) == 3 and line[2] == b"kB"}
