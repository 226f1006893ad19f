"""Asynchronous successive halving (Li et al. 2020): how trials are compared at rungs, without and with promotion."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence

from tuner.schedulers.asha.fronts import PromotionFrontRung, StoppingFrontRung
from tuner.schedulers.asha.rungs import PromotionRung, StoppingRung
from tuner.schedulers.base import Decision, Resume, Scheduler, Stop
from tuner.spec.configuration import Configuration
from tuner.spec.objective import Point

Signs = tuple[int, ...]
"""Of each objective 1 or -1: the objective times this is to be made large."""


def signed(signs: Signs, values: tuple[float, ...]) -> Point:
    """The objectives that are compared, each to be made large: ``values`` may have more, or one number for all."""
    return tuple(sign * value for sign, value in zip(signs, values, strict=False))


class StoppingAsha(Scheduler):
    """At a rung the trials continue that its `Cut` lets pass; the others end there.

    ``ladders``: the rungs below ``max_t`` of each bracket, ascending; a trial gets bracket s with probability
    proportional to exp(-s), as in Ray. Trials with several objectives are compared by fronts.
    """

    def __init__(
        self, ladders: Sequence[Sequence[int]], max_t: int, eta: float, signs: Signs, stop_last_trials: bool, seed: int
    ) -> None:
        self._max_t = max_t
        self._signs = signs
        self._stop_last_trials = stop_last_trials
        self._rng = random.Random(seed)
        self._weights = [2.718281828459045**-s for s in range(len(ladders))]
        rung = StoppingRung if len(signs) == 1 else StoppingFrontRung
        self._ladders = [[rung(level, eta) for level in reversed(levels)] for levels in ladders]
        """Of each bracket: its rungs, highest first."""
        self._bracket: dict[str, int] = {}
        self._reached: dict[str, int] = {}
        """The highest rung at which each trial was compared."""

    def add(self, trial_id: str, configuration: Configuration) -> None:
        (self._bracket[trial_id],) = self._rng.choices(range(len(self._ladders)), self._weights)
        self._reached[trial_id] = 0

    def add_at(self, trial_id: str, configuration: Configuration, step: int) -> None:
        self.add(trial_id, configuration)
        self._reached[trial_id] = step

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        return self.report_all(trial_id, step, (value,))

    def report_all(self, trial_id: str, step: int, values: tuple[float, ...]) -> Decision:
        if step >= self._max_t and self._stop_last_trials:
            return Decision.STOP
        for rung in self._ladders[self._bracket[trial_id]]:
            if self._reached[trial_id] >= rung.level:
                break
            if step >= rung.level:
                self._reached[trial_id] = rung.level
                return Decision.CONTINUE if rung.passes(trial_id, signed(self._signs, values)) else Decision.STOP
        return Decision.CONTINUE

    def remove(self, trial_id: str) -> None:
        self._bracket.pop(trial_id, None)
        self._reached.pop(trial_id, None)


class PromotionAsha(Scheduler):
    """Algorithm 2 of Li et al. 2020: trials pause at every rung, and the best continue when they are in its top 1/η.

    Resources that become free go to the promotable trial of the highest rung, or, where there is none, to a new trial.
    Trials with several objectives are compared by fronts.
    """

    def __init__(self, rungs: Sequence[int], max_t: int, eta: float, signs: Signs, stop_last_trials: bool) -> None:
        rung = PromotionRung if len(signs) == 1 else PromotionFrontRung
        self._rungs = [rung(level, eta) for level in rungs]
        self._max_t = max_t
        self._signs = signs
        self._stop_last_trials = stop_last_trials
        self._next: dict[str, int] = {}
        """Of each trial: the index of the rung that it runs to."""

    def add(self, trial_id: str, configuration: Configuration) -> None:
        self._next[trial_id] = 0

    def add_at(self, trial_id: str, configuration: Configuration, step: int) -> None:
        self._next[trial_id] = bisect_left(self._rungs, step + 1, key=lambda rung: rung.level)

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        return self.report_all(trial_id, step, (value,))

    def report_all(self, trial_id: str, step: int, values: tuple[float, ...]) -> Decision:
        if step >= self._max_t and self._stop_last_trials:
            return Decision.STOP
        k = self._next[trial_id]
        reached = bisect_left(self._rungs, step + 1, key=lambda rung: rung.level) - 1
        if reached < k:
            return Decision.CONTINUE
        point = signed(self._signs, values)
        waits = self._compares_at(self._rungs[reached].level, point)
        self._rungs[reached].record(trial_id, point, waits)
        self._next[trial_id] = reached + 1
        return Decision.PAUSE if waits else Decision.CONTINUE

    def _compares_at(self, level: int, point: Point) -> bool:
        """Whether a trial that comes to that rung with ``point`` pauses there."""
        return True

    def remove(self, trial_id: str) -> None:
        k = self._next.pop(trial_id, 0)
        if k:
            self._rungs[k - 1].forget(trial_id)

    def next_action(self, more: bool) -> Resume | Stop | None:
        for rung in reversed(self._rungs):
            trial_id = rung.promote(more)
            if trial_id is not None:
                return Resume(trial_id)
        return None
