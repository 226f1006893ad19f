"""ASHA: asynchronous successive halving."""

from __future__ import annotations

import bisect
import math
import random
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tuner.schedulers.asha.adaptive import AdaptivePromotion, AdaptiveStopping
from tuner.schedulers.asha.first_rung import ladder, possible_rungs, starting_rung
from tuner.schedulers.asha.halving import PromotionAsha, StoppingAsha
from tuner.schedulers.asha.rungs import quantile
from tuner.schedulers.base import Scheduler, StoppingSpec
from tuner.spec.model import OptionError
from tuner.spec.problem import SearchProblem

_SIMULATED_TRIALS = 3000
"""About how many trials `expected_at_rungs` simulates: fewer are simulated several times, of more only so many."""


class Asha(StoppingSpec):
    """ASHA (Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning").

    Rungs are ``grace_period * reduction_factor**k`` for k = 0, 1, …; of each the best ``1 / reduction_factor``
    continue.

    Several objectives without weights are compared by fronts (MO-ASHA, Schmucker et al. 2021). The trials of the first
    Pareto fronts at a rung continue, and of the last of these fronts the trials that are far from the others.

    Ray's ``AsyncHyperBandScheduler`` is not used. It has no promotion, acts on Ray's trials only, forgets its rungs in
    a restore, and draws brackets without a seed. The decisions of the stopping variant equal Ray's, except for equal
    values (a test compares them).

    Example:
        >>> import tuner
        >>> tuner.schedulers.Asha(time_attr="epoch", max_t=27, grace_period=1, reduction_factor=3).rungs()
        (1, 3, 9, 27)
    """

    kind: Literal["asha"] = "asha"
    """The name of this scheduler."""
    variant: Literal["stopping", "promotion"] = "stopping"
    """``stopping``: a trial that is not among the best so far ends at its rung. ``promotion`` (Algorithm 2 of the
    paper): every trial pauses at its rung, and continues from its checkpoint when it is among the best."""
    grace_period: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """r in the paper: no trial is stopped before this value of ``time_attr``. ``auto``: near ``max_t`` / 5 at first,
    then where early ranks begin to tell which trials turn out best, as the running search measures
    (`tuner.schedulers.asha.first_rung.FirstRungSelector`). If several objectives are compared by fronts, the first
    rung stays where it is at first."""
    reduction_factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 4
    """η in the paper: the best 1/η of a rung continue."""
    brackets: Annotated[int, Field(ge=1)] = 1
    """Number of brackets; bracket s has its first rung at ``grace_period * reduction_factor**s``."""
    stop_last_trials: bool = True
    """Whether a trial ends at ``max_t`` (or runs on until its function returns)."""

    @model_validator(mode="after")
    def _check(self) -> Asha:
        if self.grace_period == "auto":
            return self._check_auto()
        self.check_grace_period(self.grace_period)
        self.check_rungs(ladder(self.grace_period, self.reduction_factor, self.max_t), self.reduction_factor)
        if self.brackets > len(self.rungs()):
            raise OptionError(
                "brackets",
                f"{self.brackets} is more than the {len(self.rungs())} rungs that grace_period {self.grace_period}, "
                f"reduction_factor {self.reduction_factor:g} and max_t {self.max_t} give",
            )
        return self

    def _check_auto(self) -> Asha:
        if self.reduction_factor < 2:
            raise OptionError(
                "reduction_factor",
                f"{self.reduction_factor:g} is too small for grace_period auto: choose at least 2",
            )
        if self.brackets > 1:
            raise OptionError(
                "brackets",
                f"{self.brackets} hedges the choice of the first rung, which grace_period auto makes itself: leave "
                f"brackets out, or give grace_period as a number",
            )
        return self

    @property
    def pauses(self) -> bool:
        return self.variant == "promotion"

    @property
    def ends_at_max_t(self) -> bool:
        return self.stop_last_trials

    @property
    def compares_ranks(self) -> bool:
        return True

    @property
    def adapts_first_rung(self) -> bool:
        return self.grace_period == "auto"

    @property
    def compares_fronts(self) -> bool:
        return True

    def rungs(self) -> tuple[int, ...]:
        """With ``grace_period: auto`` all that may become one."""
        if self.grace_period == "auto":
            return possible_rungs(self.reduction_factor, self.max_t)
        return (*ladder(self.grace_period, self.reduction_factor, self.max_t), self.max_t)

    def expected_at_rungs(self, trials: int) -> tuple[float, ...]:
        """Mean over simulated searches: trials come one after the other, in random order of quality, and keep it.

        More than the 1/η of a synchronous halving continue, as the first at a rung has nothing to be compared with.
        With ``grace_period: auto`` as if the first rung stayed where it is at the start.
        """
        if self.grace_period == "auto":
            fixed = self._as_it_begins()
            reach = dict(zip(fixed.rungs(), fixed.expected_at_rungs(trials), strict=True))
            return tuple(reach[min(rung for rung in reach if rung >= level)] for level in self.rungs())
        rungs, generator = self.rungs(), random.Random(0)
        simulated = min(trials, _SIMULATED_TRIALS)
        repeats = _SIMULATED_TRIALS // simulated
        reached = [0] * len(rungs)
        weights = [math.exp(-s) for s in range(self.brackets)]
        for _ in range(repeats):
            recorded: list[list[list[float]]] = [[[] for _ in rungs] for _ in weights]
            for _ in range(simulated):
                quality = generator.random()
                (bracket,) = generator.choices(range(self.brackets), weights)
                for k, values in enumerate(recorded[bracket]):
                    reached[k] += 1
                    goes_on = k < bracket or not values or quality > quantile(values, 1 - 1 / self.reduction_factor)
                    bisect.insort(values, quality)
                    if not goes_on:
                        break
        return self.with_audit((count / repeats * (trials / simulated) for count in reached), trials)

    def build(self, task: SearchProblem) -> Scheduler:
        if self.grace_period == "auto" and len(task.signs) == 1:
            adaptive = AdaptivePromotion if self.variant == "promotion" else AdaptiveStopping
            return adaptive(self.max_t, self.reduction_factor, task.sign, self.stop_last_trials)
        levels, common = (
            self._as_it_begins().rungs()[:-1],
            (self.max_t, self.reduction_factor, task.signs, self.stop_last_trials),
        )
        if self.variant == "promotion":
            return PromotionAsha(levels, *common)
        return StoppingAsha([levels[s:] for s in range(self.brackets)], *common, task.seed)

    def _as_it_begins(self) -> Asha:
        """With the first rung of ``grace_period: auto`` as a number, where it is at first."""
        if self.grace_period != "auto":
            return self
        return self.model_copy(update={"grace_period": starting_rung(self.rungs(), self.max_t)})
