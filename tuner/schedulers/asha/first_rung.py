"""How far an early rank can be trusted, measured in the running search, and the first rung that follows from it."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_START = 5
"""A search begins with its first rung near ``max_t`` / 5, until it knows better: see `FirstRungSelector`."""

_PRIOR_WEIGHT, _PRIOR_WEIGHT_BELOW_START = 1, 3
"""Weights, in elites, of the prior belief in rungs from the start on, and below it: see `FirstRungSelector`."""

_SWITCH_FACTOR = 1.2
"""How many times better than the present first rung another one must be: see `FirstRungSelector`."""

_ELITES = 50
"""So many of the best trials of a level are looked at, at most: what a decision costs must not grow."""

_GROWTH = 1.05
"""The first rung is chosen again when there are 5 % more values: log(n) / log(1.05) times in a search of n values."""


def ladder(first: int, eta: float, max_t: int) -> Iterator[int]:
    """The rungs below ``max_t`` from ``first`` on, a factor ``eta`` apart, as the whole steps at which Ray compares."""
    level = float(first)
    while level < max_t and (rung := math.ceil(level - 1e-9)) < max_t:
        yield rung
        level *= eta


def possible_ladders(eta: float, max_t: int) -> tuple[tuple[int, ...], ...]:
    """From 1 and from √η on: every rung of theirs may become the first one."""
    half = math.ceil(math.sqrt(eta) - 1e-9)
    return tuple(ladder(1, eta, max_t)), tuple(ladder(half, eta, max_t))


def rungs_from(first: int, ladders: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """The rest of the ladder that has the rung ``first``; none where it is ``max_t``."""
    return next((rungs[rungs.index(first) :] for rungs in ladders if first in rungs), ())


def possible_rungs(eta: float, max_t: int) -> tuple[int, ...]:
    """All rungs of `possible_ladders`, ascending, and ``max_t``."""
    return (*sorted({level for rungs in possible_ladders(eta, max_t) for level in rungs}), max_t)


def starting_rung(levels: tuple[int, ...], max_t: int) -> int:
    """The one of ``levels`` that is nearest to ``max_t`` / 5 in the logarithm."""
    return min(levels, key=lambda level: abs(math.log(level * _START / max_t)))


@dataclass(frozen=True)
class Recall:
    """What is known of one level."""

    level: int
    share: float
    """Of the trials that turned out best, the share that a cut at this level would have kept; with prior belief."""
    elites: int
    """How many trials that rests on."""


class FirstRungSelector:
    """Chooses the first rung g that finds most of the best trials for its cost.

    With first rung g, a trial costs about c(g) = g (1 + (1 - 1/η) log_η(R/g)) steps, because every rung of successive
    halving costs the same (R: ``max_t``). A cut at level k keeps a share r(k) of the trials that are to be the best,
    its recall. So the best are found at the rate Π r(k) / c(g), over the rungs k from g up. The first rung is the g
    that maximises it. A level whose ranks say nothing has r = 1/η and saves less than it loses. One that misleads has r
    near 0.

    The recall is measured. Elites of a later level m (ηk or above) are the best 1/η that reached it, at most as many as
    a faultless cut at k keeps. Their share r_m(k) is the share of these elites that were among the best 1/η of all at
    k. The smallest r_m(k) counts, because only the last levels show that curves cross.

    If a trial was cut at k itself, all that continued were among the best 1/η. Then the question is whether it was
    among the best 1/η². If the chances grow as a power of the rank (Lehmann 1953), the answer is the same. So trust can
    fall, and no trial must pass only to be measured. Equal values share their mean rank, so that a level where all are
    equal earns no trust.

    Nothing is known at first. Every r_m begins as 1, with the weight of one elite. Below the start, which is R/5, all
    elites of all m together must outweigh r = 1/η with the weight of three. Another first rung must be 1.2 times
    better.

    Regret against fixed first rungs, and the tries behind the constants: docs/benchmarks/constants.md.

    Hyper-Tune (Li et al. 2022) weights brackets by the precision of their fidelity. PASHA (Bohdal et al. 2023) grows
    the last rung until ranks are stable. Both leave the first rung to the user.
    """

    def __init__(self, eta: float, max_t: int) -> None:
        self._eta = eta
        self._max_t = max_t
        self._ladders = possible_ladders(eta, max_t)
        self.levels = possible_rungs(eta, max_t)
        """The levels at which a trial's value is looked at, ascending; the last is ``max_t``."""
        self._start = self.first_rung = starting_rung(self.levels, max_t)
        """No trial is stopped before; ``max_t`` where no early rank can be trusted."""
        self.rungs = rungs_from(self.first_rung, self._ladders)
        """The rungs at which trials are compared at present."""
        self.qualities: dict[int, list[float]] = {level: [] for level in self.levels}
        """Of each level: what all that reached it had there, worst first."""
        self._best: dict[int, list[tuple[float, str]]] = {level: [] for level in self.qualities}
        """Of each level: (quality, trial) of the best `_ELITES` that reached it, worst first."""
        self._curves: dict[str, dict[int, float]] = {}
        """Of each trial: its quality at every level that it reached."""
        self._begun: dict[str, int] = {}
        """Of each trial that started from another one's checkpoint: its step."""
        self._cut: set[tuple[str, int]] = set()
        """(trial, level): it was compared there."""
        self._values = 0
        self._due = 0.0

    @classmethod
    def after(
        cls, reports: Iterable[tuple[str, int, float]], eta: float, max_t: int, begun: Mapping[str, int] | None = None
    ) -> FirstRungSelector:
        """What a search has learnt from ``reports``: (trial, step, quality to be made large) in order of time.

        ``begun``: of the trials that started from another one's checkpoint, its step.
        """
        trust = cls(eta, max_t)
        trust._begun |= begun or {}
        for trial_id, step, quality in reports:
            if (level := trust.reached(trial_id, step)) is not None:
                trust.record(trial_id, level, quality)
        return trust

    def reached(self, trial_id: str, step: int) -> int | None:
        """The highest level up to ``step``, if the trial is not known to have reached it before."""
        level = max((level for level in self.levels if self._begun.get(trial_id, 0) < level <= step), default=None)
        curve = self._curves.get(trial_id)
        return None if level is None or (curve and max(curve) >= level) else level

    def begin_at(self, trial_id: str, step: int) -> None:
        """The trial starts from another one's checkpoint: it reaches no level up to ``step``."""
        self._begun[trial_id] = step

    def compares_at(self, level: int, quality: float) -> bool:
        """Whether a trial that comes to ``level`` with ``quality`` is compared there.

        Not where fewer than η came, as nobody is in the best 1/η, nor where all are equal, as that says nothing.
        """
        known = self.qualities[level]
        return level in self.rungs and len(known) + 1 >= self._eta and not known[0] == quality == known[-1]

    def record(self, trial_id: str, level: int, quality: float) -> None:
        """The trial reached ``level``, and is compared there if `compares_at` says so. May move the rungs."""
        if self.compares_at(level, quality):
            self._cut.add((trial_id, level))
        insort(self.qualities[level], quality)
        insort(self._best[level], (quality, trial_id))
        del self._best[level][:-_ELITES]
        self._curves.setdefault(trial_id, {})[level] = quality
        self._values += 1
        if self._values >= self._due:
            self._due = self._values * _GROWTH + 1
            self._move()

    def recalls(self) -> tuple[Recall, ...]:
        """What is known of every level, ascending."""
        return tuple(self._recall(level) for level in self.levels[:-1])

    def _move(self) -> None:
        shares = {recall.level: recall.share for recall in self.recalls()}

        def rate(first: int) -> float:
            found = math.prod(shares[level] for level in rungs_from(first, self._ladders))
            cost = first * (1 + (1 - 1 / self._eta) * math.log(self._max_t / first, self._eta))
            return found / cost * (_SWITCH_FACTOR if first == self.first_rung else 1)

        self.first_rung = max(self.levels, key=rate)
        self.rungs = rungs_from(self.first_rung, self._ladders)

    def _recall(self, level: int) -> Recall:
        """The smallest over all later levels; below the start, and until it is proven, that of all of them together."""
        later = [m for m in self.levels if m > level and (m == self._max_t or m >= self._eta * level - 1e-9)]
        kept = [[self._keeps(trial, level) for trial in self._elites(m, level)] for m in later]
        shares = [(sum(of_one) + _PRIOR_WEIGHT) / (len(of_one) + _PRIOR_WEIGHT) for of_one in kept]
        elites = sum(map(len, kept))
        if level < self._start:
            shares.append(
                (sum(map(sum, kept)) + _PRIOR_WEIGHT_BELOW_START / self._eta) / (elites + _PRIOR_WEIGHT_BELOW_START)
            )
        return Recall(level, min(shares), elites)

    def _elites(self, level: int, cut: int) -> list[str]:
        """The best of ``level``: so few that a faultless ``cut`` would have kept them all."""
        count = min(int(len(self.qualities[level]) / self._eta), math.ceil(len(self.qualities[cut]) / self._eta**2))
        best = self._best[level][-count:] if count else []
        return [trial_id for _, trial_id in best if cut in self._curves[trial_id]]

    def _keeps(self, trial_id: str, level: int) -> bool:
        """Whether a cut at ``level`` would have kept the trial."""
        known, quality = self.qualities[level], self._curves[trial_id][level]
        above = bisect_right(known, quality)
        rank = len(known) - above + (above - bisect_left(known, quality) - 1) / 2
        return rank < len(known) / (self._eta**2 if (trial_id, level) in self._cut else self._eta)
