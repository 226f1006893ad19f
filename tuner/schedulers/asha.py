"""Asynchronous successive halving, the variant that stops trials."""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from tuner.schedulers.base import Mode, SchedulerSpec

if TYPE_CHECKING:
    from ray.tune.schedulers import TrialScheduler


_SIMULATED_TRIALS = 3000
"""How many trials `expected_at_rungs` simulates at least."""


def _quantile(values: list[float], share: float) -> float:
    """The ``share`` quantile of sorted ``values``, interpolated linearly, as numpy's and so Ray's."""
    position = share * (len(values) - 1)
    below = int(position)
    above = min(below + 1, len(values) - 1)
    return values[below] + (position - below) * (values[above] - values[below])


class Asha(SchedulerSpec):
    """ASHA (Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning"), stopping variant.

    At each rung, ``grace_period * reduction_factor**k`` for k = 0, 1, …, a trial goes on only if its objective is
    among the best ``1 / reduction_factor`` of all that reached the rung before it. Ray's ``AsyncHyperBandScheduler``
    does the job for one report a step: read in 2.60, its decisions equal the rule above. It never sees a value
    that is not finite, and never a report without ``time_attr``: the trial's process rejects those first.
    """

    kind: Literal["asha"] = "asha"
    time_attr: Annotated[str, Field(min_length=1)] = "training_iteration"
    """The reported number that counts progress; ``training_iteration`` counts reports."""
    max_t: Annotated[int, Field(ge=1)] = 100
    """R in the paper: the value of ``time_attr`` at which a trial is complete."""
    grace_period: Annotated[int, Field(ge=1)] = 1
    """r in the paper: no trial is stopped before this value of ``time_attr``."""
    reduction_factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 4
    """η in the paper: the best 1/η of a rung go on."""
    brackets: Annotated[int, Field(ge=1)] = 1
    """Number of brackets; bracket s has its first rung at ``grace_period * reduction_factor**s``."""
    stop_last_trials: bool = True
    """Whether a trial ends at ``max_t`` (or runs on until its function returns)."""

    @model_validator(mode="after")
    def _check(self) -> Asha:
        if self.grace_period > self.max_t:
            raise ValueError(f"grace_period {self.grace_period} is above max_t {self.max_t}: it must be at most max_t")
        for rung, following in itertools.pairwise(self._levels()):
            if rung == following:
                raise ValueError(
                    f"reduction_factor {self.reduction_factor:g} puts two rungs on {self.time_attr} {rung}: "
                    f"choose a larger one, or a larger grace_period"
                )
        if self.brackets > len(self.rungs()):
            raise ValueError(
                f"brackets {self.brackets} is more than the {len(self.rungs())} rungs that grace_period "
                f"{self.grace_period}, reduction_factor {self.reduction_factor:g} and max_t {self.max_t} give"
            )
        return self

    @property
    def fidelity(self) -> tuple[str, int]:
        return self.time_attr, self.max_t

    def rungs(self) -> tuple[int, ...]:
        return (*self._levels(), self.max_t)

    def _levels(self) -> Iterator[int]:
        """The rungs below ``max_t``, as the whole steps at which Ray compares."""
        level = float(self.grace_period)
        while (rung := math.ceil(level - 1e-9)) < self.max_t:
            yield rung
            level *= self.reduction_factor

    def expected_at_rungs(self, trials: int) -> tuple[float, ...]:
        """Mean over simulated searches: trials come one after the other, in random order of quality, and keep it.

        More than the 1/η of a synchronous halving go on, as the first at a rung has nothing to be compared with.
        """
        rungs, generator = self.rungs(), random.Random(0)
        repeats = max(1, _SIMULATED_TRIALS // trials)
        reached = [0] * len(rungs)
        weights = [math.exp(-s) for s in range(self.brackets)]
        for _ in range(repeats):
            recorded: list[list[list[float]]] = [[[] for _ in rungs] for _ in weights]
            for _ in range(trials):
                quality = generator.random()
                (bracket,) = generator.choices(range(self.brackets), weights)
                for k, values in enumerate(recorded[bracket]):
                    reached[k] += 1
                    goes_on = k < bracket or not values or quality >= _quantile(values, 1 - 1 / self.reduction_factor)
                    bisect.insort(values, quality)
                    if not goes_on:
                        break
        return tuple(count / repeats for count in reached)

    def build(self, metric: str, mode: Mode) -> TrialScheduler:
        from ray.tune.schedulers import AsyncHyperBandScheduler

        return AsyncHyperBandScheduler(
            time_attr=self.time_attr,
            metric=metric,
            mode=mode,
            max_t=self.max_t,
            grace_period=self.grace_period,
            reduction_factor=self.reduction_factor,
            brackets=self.brackets,
            stop_last_trials=self.stop_last_trials,
        )
