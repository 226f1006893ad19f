"""Searches of other libraries behind our contracts, so that the same simulator drives them in the same virtual time.

Each library's own objects are asked and told in the order in which its own loop does it; virtual time stands still
while they think, which favours those that think long. They get the search space that ours get, with its log scales,
and the defaults of their library for all that `PEERS` does not name. Syne Tune 0.16 has ASHA with stopping only. A
parameter with a condition is one without to them, and counts only while it is active.

Checked against Syne Tune's own simulator, without its delays and polling every 0.02 virtual seconds: the same seed of
its ASHA with grace period 3 gave the same 4,262 reports there and here (LCBench task 168331).
"""

from __future__ import annotations

import datetime
import functools
import logging
import warnings
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict

from tuner.schedulers.base import Decision, Scheduler, SchedulerSpec
from tuner.searchers.base import Searcher, SearchSpec
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space
from tuner.spec.space.domains import Choice, Domain
from tuner.spec.space.ranges import Float, Integer

if TYPE_CHECKING:
    import optuna
    from syne_tune.backend.trial_status import Trial
    from syne_tune.optimizer.scheduler import TrialScheduler

REDUCTION_FACTOR = 3
"""The default of Syne Tune's schedulers and of Optuna's Hyperband pruner."""

ADAPTERS = 1
"""Raise it where a change of this file changes what a peer does: finished searches are then done again."""


class Peer(Searcher, Scheduler, ABC):
    """A searcher and a scheduler in one, as other libraries have them; values are to be made large."""


class PeerSearch(SearchSpec):
    """Hands out a peer that exists."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    peer: Peer

    def build(self, task: SearchProblem) -> Searcher:
        return self.peer


class PeerScheduler(SchedulerSpec):
    """Hands out a peer that exists."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    peer: Peer

    def build(self, task: SearchProblem) -> Scheduler:
        return self.peer


class SyneTune(Peer):
    """A scheduler of Syne Tune, which has its searcher inside.

    ``unit``: whether it is given the unit cube instead of the space. Its kernel densities ignore log scales, and decode
    integers wrongly (a batch size of 16 to 512 comes out as 1 to 512): in the cube they have neither problem.
    """

    def __init__(self, scheduler: Callable[..., TrialScheduler], space: Space, seed: int, unit: bool) -> None:
        import numpy as np
        from syne_tune.config_space import uniform

        np.random.seed(seed)  # its draws come from numpy's global generator
        self._space = space
        self._unit = unit
        self._scheduler = scheduler(
            {p.name: uniform(0, 1) if unit else _syne_tune_domain(p.domain) for p in space.free},
            metric="value",
            do_minimize=False,
            random_seed=seed,
        )
        self._trials: dict[str, Trial] = {}
        self._last: dict[str, dict[str, float]] = {}

    def suggest(self, trial_id: str) -> Configuration:
        from syne_tune.backend.trial_status import Trial

        suggested = self._scheduler.suggest().config
        self._trials[trial_id] = Trial(int(trial_id), suggested, datetime.datetime.now())
        return self._space.build(lambda parameter: self._inside(parameter.domain, suggested[parameter.name]))

    def _inside(self, domain: Domain, value: Any) -> Any:
        if isinstance(domain, Choice) and not self._unit:
            return value
        u = value if self._unit else domain.to_unit(value)
        return domain.from_unit(min(max(u, 0.0), 1 - 1e-12))

    def add(self, trial_id: str, configuration: Configuration) -> None:
        self._scheduler.on_trial_add(self._trials[trial_id])

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        self._last[trial_id] = {"epoch": step, "value": value}
        if self._scheduler.on_trial_result(self._trials[trial_id], self._last[trial_id]) == "STOP":
            self._scheduler.on_trial_remove(self._trials.pop(trial_id))
            return Decision.STOP
        return Decision.CONTINUE

    def remove(self, trial_id: str) -> None:
        trial, last = self._trials.pop(trial_id, None), self._last.pop(trial_id)
        if trial is not None:
            self._scheduler.on_trial_complete(trial, last)


def _syne_tune_domain(domain: Domain) -> Any:
    from syne_tune import config_space

    if isinstance(domain, Float) and domain.q is None:
        return (config_space.loguniform if domain.log else config_space.uniform)(domain.lower, domain.upper)
    if isinstance(domain, Integer) and domain.q is None:
        return (config_space.lograndint if domain.log else config_space.randint)(domain.lower, domain.upper - 1)
    if isinstance(domain, Choice):
        return config_space.choice(list(domain.categories))
    raise LookupError(f"no translation of {domain} for Syne Tune")


class OptunaHyperband(Peer):
    """Optuna's TPE sampler with its Hyperband pruner, through ask and tell."""

    def __init__(self, space: Space, max_t: int, min_resource: int, seed: int) -> None:
        import optuna

        self._rungs = {min_resource * REDUCTION_FACTOR**k for k in range(max_t.bit_length())}
        self._space = space
        self._distributions = {p.name: _optuna_distribution(p.domain) for p in space.free}
        self._study = optuna.create_study(
            study_name=f"seed {seed}",  # decides the brackets
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=seed),
            pruner=optuna.pruners.HyperbandPruner(min_resource, max_t, REDUCTION_FACTOR),
        )
        self._trials: dict[str, optuna.Trial] = {}
        self._last: dict[str, float] = {}

    def suggest(self, trial_id: str) -> Configuration:
        self._trials[trial_id] = self._study.ask(self._distributions)
        return self._space.build(lambda parameter: self._trials[trial_id].params[parameter.name])

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        import optuna

        trial = self._trials[trial_id]
        trial.report(value, step)
        self._last[trial_id] = value
        if step in self._rungs and trial.should_prune():  # it would answer no elsewhere, but slowly
            self._study.tell(self._trials.pop(trial_id), state=optuna.trial.TrialState.PRUNED)
            return Decision.STOP
        return Decision.CONTINUE

    def remove(self, trial_id: str) -> None:
        trial, last = self._trials.pop(trial_id, None), self._last.pop(trial_id)
        if trial is not None:
            self._study.tell(trial, last)


def _optuna_distribution(domain: Domain) -> optuna.distributions.BaseDistribution:
    from optuna import distributions

    if isinstance(domain, Float) and domain.q is None:
        return distributions.FloatDistribution(domain.lower, domain.upper, log=domain.log)
    if isinstance(domain, Integer) and domain.q is None:
        return distributions.IntDistribution(domain.lower, domain.upper - 1, log=domain.log)
    if isinstance(domain, Choice):
        return distributions.CategoricalDistribution(domain.categories)
    raise LookupError(f"no translation of {domain} for Optuna")


@dataclass(frozen=True)
class SyneTuneBaseline:
    """One of Syne Tune's baselines by name; those with rungs have a ``grace_period``."""

    baseline: str
    grace_period: int | None = None
    unit: bool = False

    def __call__(self, space: Space, max_t: int, seed: int) -> Peer:
        """The peer; at ``max_t`` a trial is complete."""
        from syne_tune.optimizer import baselines

        options: dict[str, Any] = {}
        if self.grace_period is not None:
            options = {
                "time_attr": "epoch",
                "max_t": max_t,
                "grace_period": self.grace_period,
                "reduction_factor": REDUCTION_FACTOR,
            }
        made = functools.partial(getattr(baselines, self.baseline), **options)
        return SyneTune(made, space, seed, self.unit)


@dataclass(frozen=True)
class OptunaPair:
    """TPE with Hyperband."""

    min_resource: int

    def __call__(self, space: Space, max_t: int, seed: int) -> Peer:
        """The peer; at ``max_t`` a trial is complete."""
        return OptunaHyperband(space, max_t, self.min_resource, seed)


PEERS: dict[str, SyneTuneBaseline | OptunaPair] = {
    "Syne Tune ASHA, grace 1": SyneTuneBaseline("ASHA", 1),
    "Syne Tune ASHA, grace 3": SyneTuneBaseline("ASHA", 3),
    "Syne Tune ASHA, grace 5": SyneTuneBaseline("ASHA", 5),
    "Syne Tune BOHB, grace 3": SyneTuneBaseline("BOHB", 3),
    "Syne Tune BOHB, grace 5": SyneTuneBaseline("BOHB", 5),
    "Syne Tune BOHB in the unit cube, grace 3": SyneTuneBaseline("BOHB", 3, unit=True),
    "Syne Tune CQR": SyneTuneBaseline("CQR"),
    "Optuna TPE + Hyperband, min 1": OptunaPair(1),
    "Optuna TPE + Hyperband, min 3": OptunaPair(3),
}
"""By name."""


def quiet() -> None:
    """Nothing of the libraries' logging and deprecations; scikit-learn without its checks of arguments, for speed."""
    import optuna
    import sklearn

    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("syne_tune").setLevel(logging.ERROR)
    sklearn.set_config(assume_finite=True, skip_parameter_validation=True)
    _quick_percentiles()


def _quick_percentiles() -> None:
    """Percentiles of unweighted values without scikit-learn's array API, in which CQR spends nine tenths of its time.

    Compared on 20,000 random samples, and on a whole search of CQR: the same to the last bit.
    """
    import math

    import numpy as np
    from sklearn._loss import loss

    slow = loss._weighted_percentile

    def quick(values: Any, weights: Any, rank: float = 50, average: bool = False, xp: Any = None) -> Any:
        if average or values.ndim != 1 or not (weights == 1).all() or np.isnan(values).any():
            return slow(values, weights, rank, average, xp)
        last = len(values) - 1
        return np.sort(values)[min(max(math.ceil(rank / 100 * len(values)) - 1, 0), last)]

    if slow.__name__ != "quick":
        loss._weighted_percentile = quick
