"""How full this machine's memory is: whether a process that vanished was killed for lack of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

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
        cache = _entry("memory.stat", "inactive_file")  # is given back before anyone is killed
        share = max(share, (current - cache) / limit)
    return share


def kills() -> int:
    """Processes that the kernel has killed for lack of memory, as far as it tells."""
    return _entry("memory.events", "oom_kill")


class Gauge:
    """Remembers for a few seconds how full the memory was: when a death is noticed, it has been given back."""

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


def _entry(name: str, key: str) -> int:
    try:
        lines = (_GROUP / name).read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{key} ")), 0)
