"""How full the memory of a node is: whether a process that vanished was killed for lack of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

NEARLY_FULL = 0.95
"""Share of the memory in use at which the kernel or Ray may kill a process."""
LOOK_EVERY_S, REMEMBER_S = 0.5, 10.0

_GROUP = Path("/sys/fs/cgroup")


def used_share() -> float:
    """Memory in use by what shares this process's limit: its control group where that has one, else the machine."""
    import psutil

    share = float(psutil.virtual_memory().percent) / 100
    limit, current = _number("memory.max"), _number("memory.current")
    if limit and current is not None:
        cache = _entry(_GROUP / "memory.stat", "inactive_file")  # is given back before anyone is killed
        share = max(share, (current - cache) / limit)
    return share


def kills() -> int:
    """Processes that the kernel has killed for lack of memory: in this control group, or else on this machine."""
    here = _GROUP / "memory.events"  # the root of a machine has none
    return _entry(here if here.exists() else Path("/proc/vmstat"), "oom_kill")


def kills_on(node: str) -> Any:
    """The `kills` of another node, by Ray's id: what a task there will answer."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(kills).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote()


class OutOfMemoryKills:
    """Whether the kernels of other nodes have killed processes of ours for lack of memory."""

    def __init__(self, count: Callable[[str], Any] = kills_on, look: Callable[[list[Any]], Any] | None = None) -> None:
        self._count = count
        self._look = look or _answers
        self._before: dict[str, Any] = {}
        """Of each node: what it answers to the question that was put to it last."""

    def started(self, node: str) -> None:
        """A process starts there."""
        if node not in self._before:
            self._before[node] = self._count(node)

    def died(self, node: str) -> Callable[[], bool | None]:
        """A process has died there. Returns what tells whether the kernel has killed since; None: not yet known."""
        asked = [self._before.get(node), self._count(node)]
        self._before[node] = asked[1]
        return lambda: self._look(asked)


def _answers(asked: list[Any]) -> bool | None:
    """Whether the second of two counts is higher, both as tasks answer; False if one cannot be had."""
    import ray

    if asked[0] is None:
        return False
    if len(ray.wait(asked, num_returns=2, timeout=0)[0]) < 2:
        return None
    try:
        before, now = ray.get(asked)
    except ray.exceptions.RayError:  # the node is gone
        return False
    return bool(now > before)


class MemoryMonitor:
    """Remembers for some seconds how full this machine's memory was: when a death is noticed, it is free again."""

    def __init__(
        self,
        share: Callable[[], float] = used_share,
        killed: Callable[[], int] = kills,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._share, self._kills, self._clock = share, killed, clock
        self._seen: deque[tuple[float, float]] = deque()
        self._killed = killed()

    def look(self) -> None:
        """Call it often."""
        now = self._clock()
        if not self._seen or now >= self._seen[-1][0] + LOOK_EVERY_S:
            self._seen.append((now, self._share()))
            while self._seen[0][0] < now - REMEMBER_S:
                self._seen.popleft()

    def was_full(self) -> bool:
        """Whether the memory was nearly full lately, or the kernel has killed for it since this was asked last."""
        before, self._killed = self._killed, self._kills()
        return self._killed > before or any(share >= NEARLY_FULL for _, share in self._seen)


def _number(name: str) -> int | None:
    try:
        text = (_GROUP / name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _entry(file: Path, key: str) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{key} ")), 0)
