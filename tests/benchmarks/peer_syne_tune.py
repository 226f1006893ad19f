"""Syne Tune's schedulers."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peer import REDUCTION_FACTOR, Peer

from tuner.schedulers.base import Decision
from tuner.spec.configuration import Configuration
from tuner.spec.space import Space
from tuner.spec.space.domains import Choice, Domain
from tuner.spec.space.ranges import Float, Integer

if TYPE_CHECKING:
    from syne_tune.backend.trial_status import Trial
    from syne_tune.optimizer.scheduler import TrialScheduler


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


@dataclass(frozen=True)
class SyneTuneBaseline:
    """One of Syne Tune's baselines by name; those with rungs have a ``grace_period``."""

    baseline: str
    grace_period: int | None = None
    unit: bool = False
    reduction_factor: int = REDUCTION_FACTOR

    def __call__(self, space: Space, max_t: int, seed: int) -> Peer:
        """The peer; at ``max_t`` a trial is complete."""
        from syne_tune.optimizer import baselines

        options: dict[str, Any] = {}
        if self.grace_period is not None:
            options = {
                "time_attr": "epoch",
                "max_t": max_t,
                "grace_period": self.grace_period,
                "reduction_factor": self.reduction_factor,
            }
        made = functools.partial(getattr(baselines, self.baseline), **options)
        return SyneTune(made, space, seed, self.unit)
