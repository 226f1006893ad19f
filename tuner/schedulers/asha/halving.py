"""Asynchronous successive halving (Li et al. 2020): how trials are compared at rungs, without and with promotion."""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict
from collections.abc import Sequence

from tuner.schedulers.base import Decision, Resume, Scheduler, Stop
from tuner.spec.configuration import Configuration


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


class StoppingAsha(Scheduler):
    """At a rung the trials continue that its `Cut` lets pass; the others end there.

    ``ladders``: the rungs below ``max_t`` of each bracket, ascending; a trial gets bracket s with probability
    proportional to exp(-s), as in Ray. ``sign`` is -1 where small values are good.
    """

    def __init__(
        self, ladders: Sequence[Sequence[int]], max_t: int, eta: float, sign: int, stop_last_trials: bool, seed: int
    ) -> None:
        self._max_t = max_t
        self._sign = sign
        self._stop_last_trials = stop_last_trials
        self._rng = random.Random(seed)
        self._weights = [2.718281828459045**-s for s in range(len(ladders))]
        self._ladders: list[list[tuple[int, Cut, list[float]]]] = [
            [(rung, Cut(eta), []) for rung in reversed(rungs)] for rungs in ladders
        ]
        """Of each bracket: its rungs, highest first, each with the sorted values recorded there."""
        self._bracket: dict[str, int] = {}
        self._reached: dict[str, int] = {}
        """The highest rung at which each trial was compared."""

    def add(self, trial_id: str, configuration: Configuration) -> None:
        (self._bracket[trial_id],) = self._rng.choices(range(len(self._ladders)), self._weights)
        self._reached[trial_id] = 0

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        if step >= self._max_t and self._stop_last_trials:
            return Decision.STOP
        for rung, cut, values in self._ladders[self._bracket[trial_id]]:
            if self._reached[trial_id] >= rung:
                break
            if step >= rung:
                quality = self._sign * value
                goes_on = cut.continues(quality, values)
                insort(values, quality)
                self._reached[trial_id] = rung
                return Decision.CONTINUE if goes_on else Decision.STOP
        return Decision.CONTINUE

    def remove(self, trial_id: str) -> None:
        self._bracket.pop(trial_id, None)
        self._reached.pop(trial_id, None)


class _Rung:
    """The trials that reached one rung, and which of them are worth continuing."""

    def __init__(self, level: int) -> None:
        self.level = level
        self._ranked: list[tuple[float, int]] = []
        """(quality, - order of arrival) of all that came, worst first: of two equal ones the first is the better."""
        self._best: list[tuple[float, int, str]] = []
        """A heap of the trials that pause here, (- quality, order of arrival, trial); some may have left meanwhile."""
        self._waiting: OrderedDict[str, None] = OrderedDict()
        """Those that pause here, in the order of arrival."""

    def record(self, trial_id: str, quality: float, waits: bool = True) -> None:
        order = len(self._ranked)
        insort(self._ranked, (quality, -order))
        if waits:
            heapq.heappush(self._best, (-quality, order, trial_id))
            self._waiting[trial_id] = None

    def promote(self, eta: float, more: bool) -> str | None:
        """The best trial that waits here, if it is among the best 1/η of all that came (rounded up without more)."""
        while self._best and self._best[0][2] not in self._waiting:
            heapq.heappop(self._best)
        if not self._best:
            return None
        negative, order, trial_id = self._best[0]
        better = len(self._ranked) - bisect_right(self._ranked, (-negative, -order))
        places = int(len(self._ranked) / eta) if more else -int(-len(self._ranked) // eta)
        if better >= places:
            return None
        self.forget(trial_id)
        return trial_id

    def release(self) -> str | None:
        """The trial that has waited here for longest, whatever its rank."""
        return self._waiting.popitem(last=False)[0] if self._waiting else None

    def forget(self, trial_id: str) -> None:
        """A trial does not wait here any more; its value stays, as the others were compared with it."""
        self._waiting.pop(trial_id, None)


class PromotionAsha(Scheduler):
    """Algorithm 2 of Li et al. 2020: trials pause at every rung, and the best continue when they are in its top 1/η.

    Resources that become free go to the promotable trial of the highest rung, or, where there is none, to a new trial.
    """

    def __init__(self, rungs: Sequence[int], max_t: int, eta: float, sign: int, stop_last_trials: bool) -> None:
        self._rungs = [_Rung(level) for level in rungs]
        self._max_t = max_t
        self._eta = eta
        self._sign = sign
        self._stop_last_trials = stop_last_trials
        self._next: dict[str, int] = {}
        """Of each trial: the index of the rung that it runs to."""

    def add(self, trial_id: str, configuration: Configuration) -> None:
        self._next[trial_id] = 0

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        if step >= self._max_t and self._stop_last_trials:
            return Decision.STOP
        k = self._next[trial_id]
        reached = bisect_left(self._rungs, step + 1, key=lambda rung: rung.level) - 1
        if reached < k:
            return Decision.CONTINUE
        quality = self._sign * value
        waits = self._compares_at(self._rungs[reached].level, quality)
        self._rungs[reached].record(trial_id, quality, waits)
        self._next[trial_id] = reached + 1
        return Decision.PAUSE if waits else Decision.CONTINUE

    def _compares_at(self, level: int, quality: float) -> bool:
        """Whether a trial that comes to that rung with ``quality`` pauses there."""
        return True

    def remove(self, trial_id: str) -> None:
        k = self._next.pop(trial_id, 0)
        if k:
            self._rungs[k - 1].forget(trial_id)

    def next_action(self, more: bool) -> Resume | Stop | None:
        for rung in reversed(self._rungs):
            trial_id = rung.promote(self._eta, more)
            if trial_id is not None:
                return Resume(trial_id)
        return None
