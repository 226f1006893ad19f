"""How good each trial was at which fidelity: what a model of one fidelity at a time learns from."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from tuner.spec.outcome_constraints import is_infeasible

if TYPE_CHECKING:
    from numpy.random import Generator

_MOST_BELOW = 1000
"""Trials below b that are remembered, of each kind: the latest."""

_LARGEST_SAMPLE = 256
"""Trials of either kind that `Observations.split` gives at most."""


class Observations:
    """The losses of all trials at the fidelity b, the highest at which ``enough`` of them reported, and above it.

    Of the fidelities below b only the last loss of a trial that ended or waits is remembered, so that memory does not
    grow with the length of the trials. If ``max_t`` is None, an ended trial has reached the highest fidelity of all,
    whatever its last step was.

    A trial whose latest report breaks an outcome constraint is known at b too, wherever it was stopped: else a model
    would never see the limits.
    """

    def __init__(self, max_t: int | None, enough: int) -> None:
        self._complete = math.inf if max_t is None else max_t
        self._ends_complete = max_t is None
        self._enough = enough
        self._b = 0.0
        self._levels: dict[float, list[tuple[float, int]]] = {}
        """Of each fidelity from b up: (loss, trial), sorted."""
        self._arrivals: dict[float, dict[int, float]] = {}
        """Of each fidelity from b up: the loss of each trial, in the order in which they came there."""
        self._running: dict[int, dict[float, float]] = {}
        """Of each trial that has not ended: its losses by fidelity, from b up."""
        self._failed: list[int] = []
        self._broken: dict[int, float] = {}
        """Of each trial whose latest report breaks an outcome constraint: the loss."""
        self._halted: dict[int, tuple[float, float]] = {}
        """Of each trial that ended or waits: its last fidelity and the loss there. A resumed search may hear of them in
        another order."""

    def start(self, trial: int) -> None:
        """``trial`` runs."""
        self._running[trial] = {}

    def report(self, trial: int, step: float, loss: float) -> None:
        """A running trial has a loss; a second one at the same step replaces the first."""
        self._broken.pop(trial, None)
        if is_infeasible(loss):
            self._broken[trial] = loss
            if len(self._broken) > _MOST_BELOW:
                del self._broken[next(iter(self._broken))]
        fidelity = min(step, self._complete)
        if fidelity < self._b:
            return
        level, losses = self._levels.setdefault(fidelity, []), self._running[trial]
        self._arrivals.setdefault(fidelity, {})[trial] = loss
        if fidelity in losses:
            del level[bisect_left(level, (losses[fidelity], trial))]
        losses[fidelity] = loss
        insort(level, (loss, trial))
        if fidelity > self._b and len(level) >= self._enough:
            self._raise_fidelity(fidelity)

    def pause(self, trial: int, step: float, loss: float) -> None:
        """A running trial waits with this loss."""
        self._halt(trial, step, loss)

    def resume(self, trial: int) -> None:
        """A trial that waits runs again."""
        self._halted.pop(trial, None)

    def end(self, trial: int, step: float, loss: float) -> None:
        """A running trial ended with this loss."""
        fidelity = self._complete if self._ends_complete else step
        self.report(trial, fidelity, loss)
        self._halt(trial, fidelity, loss)
        del self._running[trial]

    def fail(self, trial: int) -> None:
        """A running trial failed: it is worse than all the others at every fidelity."""
        for fidelity, loss in self._running.pop(trial).items():
            level = self._levels[fidelity]
            del level[bisect_left(level, (loss, trial))]
            del self._arrivals[fidelity][trial]
        self._broken.pop(trial, None)
        self._halted.pop(trial, None)
        self._failed.append(trial)

    def known(self, limit: int) -> dict[int, float]:
        """The loss at b of the trials that have one; of more than ``limit`` the best quarter of it and the latest.

        And that of trials which break a constraint below b: a quarter of ``limit`` at most.
        """
        arrived = self._arrivals.get(self._b, {})
        broken = self._broken_below(limit // 4)
        limit -= len(broken)
        if len(arrived) <= limit:
            return broken | arrived
        best = {trial: loss for loss, trial in self._levels[self._b][: limit // 4]}
        latest = itertools.islice(reversed(arrived.items()), limit - len(best))
        return broken | best | dict(latest)

    def _broken_below(self, most: int) -> dict[int, float]:
        """The latest trials that break a constraint and have not reached b."""
        arrived = self._arrivals.get(self._b, {})
        found = ((trial, loss) for trial, loss in reversed(self._broken.items()) if trial not in arrived)
        return dict(itertools.islice(found, most))

    def split(self, n_min: int, gamma: float, rng: Generator) -> tuple[list[int], list[int]] | None:
        """The good trials and the others; None where too few are known.

        Good is the share ``gamma`` of the trials at b, or ``n_min`` where that is more, but at most half. The others
        are the rest of them, the failed trials, and some trials that ended or wait below b. These break a constraint
        there, or are worse there than the good ones are at b: a better one may have converged early.
        """
        level = self._levels.get(self._b, [])
        if len(level) < self._enough:
            return None
        n_good = min(max(n_min, int(gamma * len(level))), len(level) // 2)
        rest = len(level) - n_good
        good = [level[k][1] for k in _some(n_good, rng)]
        broken = self._broken_below(_LARGEST_SAMPLE)
        halted = self._halted_below(level[n_good - 1][0])
        bad = [*self._failed, *broken, *(trial for trial in halted if trial not in broken)]
        others = _some(rest + len(bad), rng)
        return good, [level[n_good + k][1] if k < rest else bad[k - rest] for k in others]

    def _halt(self, trial: int, fidelity: float, loss: float) -> None:
        self._halted[trial] = fidelity, loss
        if len(self._halted) > _MOST_BELOW:
            del self._halted[min(self._halted)]

    def _halted_below(self, loss: float) -> list[int]:
        """The trials that ended or wait below b and are worse than ``loss`` there."""
        return [trial for trial, (fidelity, last) in sorted(self._halted.items()) if fidelity < self._b and last > loss]

    def _raise_fidelity(self, fidelity: float) -> None:
        self._b = fidelity
        self._levels = {at: level for at, level in self._levels.items() if at >= fidelity}
        self._arrivals = {at: losses for at, losses in self._arrivals.items() if at >= fidelity}
        self._running = {
            trial: {at: loss for at, loss in losses.items() if at >= fidelity}
            for trial, losses in self._running.items()
        }


def _some(n: int, rng: Generator) -> list[int]:
    """All of ``range(n)``, or `_LARGEST_SAMPLE` of them."""
    if n <= _LARGEST_SAMPLE:
        return list(range(n))
    drawn: list[int] = rng.choice(n, _LARGEST_SAMPLE, replace=False).tolist()
    return drawn
