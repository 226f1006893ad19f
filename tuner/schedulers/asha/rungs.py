"""One rung of successive halving: which of the trials that came to it continue."""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections import Counter, OrderedDict
from collections.abc import Sequence

from tuner.spec.objective import Point


def quantile(values: Sequence[float], share: float) -> float:
    """The ``share`` quantile of sorted ``values``, interpolated linearly, as numpy's."""
    position = share * (len(values) - 1)
    below = int(position)
    above = min(below + 1, len(values) - 1)
    return values[below] + (position - below) * (values[above] - values[below])


class Cut:
    """Which trials continue at one rung: a trial above the (1 - 1/η) quantile of the earlier ones.

    That is Ray's rule, except for values equal to the quantile. Ray lets all of them pass: if a metric is coarse, or a
    search repeats itself, all would run to the end. To let none pass is wrong too: if a metric stands at chance for
    some steps, no trial would survive these. Here equal ones continue in the order of arrival, until they and the
    better ones make 1/η of all.
    """

    def __init__(self, eta: float) -> None:
        self._eta = eta
        self._continued: Counter[float] = Counter()
        """How many trials continued with each quality."""

    def continues(self, quality: float, values: Sequence[float]) -> bool:
        """Whether a trial continues; ``values`` are the qualities of the earlier ones, worst first."""
        above = quality - quantile(values, 1 - 1 / self._eta) if values else 1.0
        better = len(values) - bisect_right(values, quality)
        has_place = better + self._continued[quality] < (len(values) + 1) / self._eta
        continues = above > 0 or (above == 0 and has_place)
        self._continued[quality] += continues
        return continues


class StoppingRung:
    """One rung: its `Cut`, and what was recorded there."""

    def __init__(self, level: int, eta: float) -> None:
        self.level = level
        self._cut = Cut(eta)
        self._values: list[float] = []
        """Sorted."""

    def passes(self, trial_id: str, point: Point) -> bool:
        """Takes note of a trial; whether it continues."""
        (quality,) = point
        continues = self._cut.continues(quality, self._values)
        insort(self._values, quality)
        return continues


class WaitingTrials:
    """The trials that pause at one rung."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, None] = OrderedDict()
        """In the order of arrival."""

    def release(self) -> str | None:
        """The trial that has waited here for longest, whatever its rank."""
        return self._waiting.popitem(last=False)[0] if self._waiting else None

    def forget(self, trial_id: str) -> None:
        """A trial does not wait here any more; its value stays, as the others were compared with it."""
        self._waiting.pop(trial_id, None)


class PromotionRung(WaitingTrials):
    """The trials that reached one rung, and which of them are worth continuing."""

    def __init__(self, level: int, eta: float) -> None:
        super().__init__()
        self.level = level
        self._eta = eta
        self._ranked: list[tuple[float, int]] = []
        """(quality, - order of arrival) of all that came, worst first: of two equal ones the first is the better."""
        self._best: list[tuple[float, int, str]] = []
        """A heap of the trials that pause here, (- quality, order of arrival, trial); some may have left meanwhile."""

    def record(self, trial_id: str, point: Point, waits: bool = True) -> None:
        (quality,) = point
        order = len(self._ranked)
        insort(self._ranked, (quality, -order))
        if waits:
            heapq.heappush(self._best, (-quality, order, trial_id))
            self._waiting[trial_id] = None

    def promote(self, more: bool) -> str | None:
        """The best trial that waits here, if it is among the best 1/η of all that came (rounded up without more)."""
        while self._best and self._best[0][2] not in self._waiting:
            heapq.heappop(self._best)
        if not self._best:
            return None
        negative, order, trial_id = self._best[0]
        better = len(self._ranked) - bisect_right(self._ranked, (-negative, -order))
        places = int(len(self._ranked) / self._eta) if more else -int(-len(self._ranked) // self._eta)
        if better >= places:
            return None
        self.forget(trial_id)
        return trial_id
