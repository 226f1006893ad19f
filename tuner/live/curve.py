"""Series that grow, each point with the number of the event that put it there: what is new since an event is a tail."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

MOST_POINTS = 50_000
"""Points of the curves of all trials together, but for a factor that grows with the logarithm of their number."""

_LONGEST, _LEAST = 120, 4
"""Points of a curve at most, and at least."""


def points_of(number: int) -> int:
    """Points that the curve of trial ``number`` has at most: fewer in a run of many trials."""
    return max(_LEAST, min(_LONGEST, MOST_POINTS // number))


class Curve:
    """Points in the order of their steps, evenly thinned: at most so many, and always the latest."""

    __slots__ = ("_appended", "_every", "_is_extra", "_most", "_seen", "_steps", "xs", "ys")

    def __init__(self, most: int) -> None:
        self._most = most
        self._every = 1
        """Of the points, every that many is kept."""
        self._appended = 0
        self._is_extra = False
        """Whether the last point is there only because it is the last."""
        self._steps: list[float] = []
        self._seen: list[int] = []
        """Of each point: the event that put it there, or moved it to its place. They ascend."""
        self.xs: list[float | None] = []
        self.ys: list[float | None] = []

    def put(self, event: int, step: float, x: float | None, y: float | None) -> None:
        """A point, which replaces that of the same step. One between others is left out of a curve that was thinned."""
        i = bisect_left(self._steps, step)
        if i < len(self._steps):
            if self._steps[i] == step or (self._every == 1 and len(self._steps) < self._most):
                self._insert(i, event, step, x, y)
            return
        if self._is_extra:
            self._cut(len(self._steps) - 1)
        self._steps.append(step)
        self._seen.append(event)
        self.xs.append(x)
        self.ys.append(y)
        self._is_extra = self._appended % self._every != 0
        self._appended += 1
        if len(self._steps) > self._most:
            self._thin(event)

    def since(self, event: int) -> int:
        """The first point that came after ``event``: all before it are as they were."""
        return bisect_right(self._seen, event)

    def _insert(self, i: int, event: int, step: float, x: float | None, y: float | None) -> None:
        end = i + (self._steps[i] == step)
        self._steps[i:end], self.xs[i:end], self.ys[i:end] = [step], [x], [y]
        self._seen[i:] = [event] * (len(self._steps) - i)

    def _cut(self, length: int) -> None:
        for part in (self._steps, self._seen, self.xs, self.ys):
            del part[length:]

    def _thin(self, event: int) -> None:
        self._every *= 2
        last = len(self._steps) - 1
        kept = [i for i in range(len(self._steps)) if i % 2 == 0 or i == last]
        self._is_extra = (self._appended - 1) % self._every != 0
        self._steps = [self._steps[i] for i in kept]
        self._seen = [event] * len(kept)
        self.xs, self.ys = [self.xs[i] for i in kept], [self.ys[i] for i in kept]
