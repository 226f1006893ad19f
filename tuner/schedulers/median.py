"""The median stopping rule."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tuner.schedulers.asha.rungs import quantile
from tuner.schedulers.base import Decision, Scheduler, StoppingSpec
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem


class Median(StoppingSpec):
    """The median stopping rule of Vizier (Golovin et al. 2017).

    The mean of a trial's values up to step t is its running average there. A trial stops at t if its best value is
    worse than the median of the running averages of the other trials that reported at t. A trial ends at ``max_t``,
    which Ray does not have.

    Ray's ``MedianStoppingRule`` is not used. It computes every mean anew at every report (its cost grows with trials
    times reports), acts on Ray's trials only, and forgets everything in a restore. Its ``min_time_slice`` and
    ``hard_stop: false`` are left out: they put trials aside instead of stopping them, and finish them after the others.

    Example:
        >>> import tuner
        >>> tuner.schedulers.Median(time_attr="epoch", max_t=27).fidelity
        ('epoch', 27)
    """

    kind: Literal["median"] = "median"
    """The name of this scheduler."""
    grace_period: Annotated[int, Field(ge=1)] = 1
    """No trial is stopped before this value of ``time_attr``, and the means leave out what came before it."""
    min_samples_required: Annotated[int, Field(ge=1)] = 3
    """Of how many other trials a median is taken at least."""

    @model_validator(mode="after")
    def _check(self) -> Median:
        self.check_grace_period(self.grace_period)
        return self

    def decides_at(self, before: float, step: float) -> bool:
        return step >= self.grace_period

    def build(self, task: SearchProblem) -> Scheduler:
        return MedianStopping(self, task.sign)


@dataclass
class _Course:
    """What one running trial has reported."""

    step: int = 0
    best: float = float("-inf")
    total: float = 0
    count: int = 0
    """Of the values in ``total``: those from the grace period on."""


class MedianStopping(Scheduler):
    """Keeps the running means of all trials sorted at each step, so that a report costs one search in a sorted list."""

    def __init__(self, spec: Median, sign: int) -> None:
        self._spec = spec
        self._sign = sign
        self._curves: dict[str, _Course] = {}
        self._means: dict[int, list[float]] = {}
        """At each step: the sorted running means of the trials that reported there, ended ones included."""

    def add(self, trial_id: str, configuration: Configuration) -> None:
        self._curves[trial_id] = _Course()

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        curve, quality = self._curves[trial_id], self._sign * value
        if step >= self._spec.max_t:
            return Decision.STOP
        if step <= curve.step:  # it restarted from a checkpoint: this was counted
            return Decision.CONTINUE
        curve.step, curve.best = step, max(curve.best, quality)
        if step < self._spec.grace_period:
            return Decision.CONTINUE
        curve.total += quality
        curve.count += 1
        others = self._means.setdefault(step, [])
        enough = len(others) >= self._spec.min_samples_required
        worse = enough and curve.best < quantile(others, 0.5)
        insort(others, curve.total / curve.count)
        return Decision.STOP if worse else Decision.CONTINUE

    def remove(self, trial_id: str) -> None:
        self._curves.pop(trial_id, None)
