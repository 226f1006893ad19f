"""How often, and how much at once, one user may ask: nobody can keep the others waiting."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tuner.service.errors import TooMany


@dataclass(frozen=True)
class Limits:
    """What one user may do; the server's options could change it.

    Example:
        >>> from tuner.service.limits import Limits
        >>> Limits(rate=1.0).burst
        200.0
    """

    rate: float = 20.0
    """Requests a second, over a long time."""
    burst: float = 200.0
    """Requests at once, after a pause."""
    at_once: int = 100
    """Requests that run at the same time; a live page that is open is one."""
    in_work: int = 4
    """Of them, those that are worked on; the others wait. Live pages and transfers of files do not count."""
    transfers: int = 4
    """Of them, uploads of code and copies of run folders."""
    refused_rate: float = 5.0
    """Requests a second without a valid token, from one address."""
    refused_burst: float = 50.0
    """Such requests at once, after a pause."""
    bytes_a_token: int = 50_000
    """Of a body that is read into the memory: so many count as one more request."""
    body: int = 5_000_000
    """Bytes of a request, but for code: an experiment has at most 4,000,000."""


class Buckets:
    """Token buckets, one for each user: each request takes a token, and tokens come back at a steady rate."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``rate``: tokens a second; ``burst``: tokens that a full bucket holds; ``clock``: seconds."""
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()
        self._clean_at = clock()

    def take(self, who: str, tokens: float = 1.0) -> None:
        """Takes tokens of ``who``. Raises TooMany if so many are not left."""
        with self._lock:
            now = self._clock()
            self._forget(now)
            left = self._level(who, now)
            if left < tokens:
                wait = (tokens - left) / self._rate
                most = f"at most {self._rate:g} a second, and a large one counts as several"
                raise TooMany(f"too many requests: {most}; wait {math.ceil(wait)} s", wait)
            self._left[who] = left - tokens, now

    def _level(self, who: str, now: float) -> float:
        left, at = self._left.get(who, (self._burst, now))
        return min(self._burst, left + (now - at) * self._rate)

    def _forget(self, now: float) -> None:
        """Full buckets, so that addresses that come once need no memory for ever."""
        if now > self._clean_at + self._burst / self._rate:
            self._left = {who: found for who, found in self._left.items() if self._level(who, now) < self._burst}
            self._clean_at = now


@dataclass
class AtOnce:
    """Counts what runs at the same time."""

    most: int
    """For one user."""
    what: str
    """In words, for the message."""
    _running: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def one(self, who: str) -> Iterator[None]:
        """Within: one more runs. Raises TooMany if that is too many."""
        with self._lock:
            if self._running[who] >= self.most:
                raise TooMany(f"{who} has {self.most} {self.what} at once: wait until one of them ends", 1.0)
            self._running[who] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[who] -= 1
                if not self._running[who]:
                    del self._running[who]
