"""Asynchronous successive halving for several objectives: trials are compared by fronts instead of by one value.

MO-ASHA (Schmucker et al. 2021, "Multi-objective Asynchronous Successive Halving"): of two trials at a rung the better
one lies on the earlier Pareto front (NSGA-II's non-dominated sorting). Within a front the paper's ε-net decides: the
trial comes first that is farthest from those before it, so that those that continue spread over the front.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from tuner.schedulers.asha.rungs import WaitingTrials
from tuner.spec.objective import Point

_MOST = 200
"""A trial is compared with so many others at most, so that a decision never costs more."""


def preferred(points: NDArray[np.float64]) -> list[int]:
    """The rows of ``points`` (to be made large), the best first; of equal ones that which came first."""
    at_least = np.all(points[:, None] >= points[None], axis=2)
    dominates = np.logical_and(at_least, np.logical_not(at_least.T))
    betters = dominates.sum(axis=0)
    order = list[int]()
    while len(order) < len(points):
        front = np.flatnonzero(betters == 0)
        order += _spread(front, points)
        betters -= dominates[front].sum(axis=0)
        betters[front] = -1
    return order


def _spread(front: NDArray[np.int_], points: NDArray[np.float64]) -> list[int]:
    """The rows of one front: first the best in the first objective, then always the farthest from those before."""
    values = points[front]
    extent = np.ptp(values, axis=0)
    values = values / np.where(extent > 0, extent, 1)
    first = int(values[:, 0].argmax())
    order, distances = [first], np.linalg.norm(values - values[first], axis=1)
    distances[first] = -1
    while len(order) < len(front):
        farthest = int(distances.argmax())
        order.append(farthest)
        distances = np.minimum(distances, np.linalg.norm(values - values[farthest], axis=1))
        distances[order] = -1
    return [int(front[i]) for i in order]


class StoppingFrontRung:
    """The trials that came to one rung last, and whether a new one is among the best of them."""

    def __init__(self, level: int, eta: float) -> None:
        self.level = level
        self._eta = eta
        self._came: deque[tuple[str, Point]] = deque(maxlen=_MOST)
        self._passed: set[str] = set()
        """The trials among them with a place: they continued."""

    def passes(self, trial_id: str, point: Point) -> bool:
        """Takes note of a trial, and tells whether it is among the best 1/η; the first one is.

        Of equal ones those that ended here take no place: as with one objective (`Cut`), a metric that stands
        at chance for some steps ends only its share of the trials.
        """
        equal = {other for other, theirs in self._came if theirs == point}
        if len(self._came) == _MOST:
            self._passed.discard(self._came[0][0])
        self._came.append((trial_id, point))
        order = preferred(np.array([theirs for _, theirs in self._came]))
        before = [self._came[row][0] for row in order[: order.index(len(order) - 1)]]
        better = sum(other not in equal or other in self._passed for other in before)
        passes = better < max(len(self._came) / self._eta, 1)
        if passes:
            self._passed.add(trial_id)
        return passes


class PromotionFrontRung(WaitingTrials):
    """The best of the trials that came to one rung, and which of them are worth continuing."""

    def __init__(self, level: int, eta: float) -> None:
        super().__init__()
        self.level = level
        self._eta = eta
        self._count = 0
        """Of all trials that came."""
        self._best: dict[str, Point] = {}
        """Those that wait here and those that were promoted: the best `_MOST`, and what came since they were found."""
        self._order: list[str] | None = None
        """Of them, the best first; None if one came since it was found."""

    def record(self, trial_id: str, point: Point, waits: bool = True) -> None:
        """Takes note of a trial, which pauses here if it ``waits``."""
        self._count += 1
        self._best[trial_id] = point
        self._order = None
        if waits:
            self._waiting[trial_id] = None

    def promote(self, more: bool) -> str | None:
        """The best trial that waits here, if it is among the best 1/η of all that came (rounded up without more)."""
        places = int(self._count / self._eta) if more else -int(-self._count // self._eta)
        trial_id = next((trial_id for trial_id in self._ranked()[:places] if trial_id in self._waiting), None)
        if trial_id is not None:
            self.forget(trial_id)
        return trial_id

    def _ranked(self) -> list[str]:
        if self._order is None:
            ids = list(self._best)
            self._order = [ids[row] for row in preferred(np.array(list(self._best.values())))] if ids else []
            if len(ids) >= 2 * _MOST:
                self._order = self._order[:_MOST]
                self._best = {trial_id: self._best[trial_id] for trial_id in self._order}
        return self._order
