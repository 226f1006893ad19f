"""Optuna's samplers with its pruners, through ask and tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from peer import REDUCTION_FACTOR, Peer

from tuner.schedulers.base import Decision
from tuner.spec.configuration import Configuration
from tuner.spec.space import Space
from tuner.spec.space.domains import Choice, Domain
from tuner.spec.space.ranges import Float, Integer

if TYPE_CHECKING:
    import optuna


class OptunaStudy(Peer):
    """A study with a sampler and a pruner that compares at ``rungs``."""

    def __init__(
        self,
        space: Space,
        sampler: optuna.samplers.BaseSampler,
        pruner: optuna.pruners.BasePruner,
        rungs: Iterable[int],
        seed: int,
    ) -> None:
        import optuna

        self._rungs = frozenset(rungs)
        self._space = space
        self._distributions = {p.name: _optuna_distribution(p.domain) for p in space.free}
        self._study = optuna.create_study(
            study_name=f"seed {seed}",  # decides the brackets
            direction="maximize",
            sampler=sampler,
            pruner=pruner,
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
class OptunaPair:
    """A sampler and a pruner, with their defaults for all else."""

    min_resource: int
    sampler: Literal["tpe", "gp"] = "tpe"
    pruner: Literal["hyperband", "halving"] = "hyperband"
    reduction_factor: int = REDUCTION_FACTOR
    multivariate: bool = False
    """Of TPE."""

    def __call__(self, space: Space, max_t: int, seed: int) -> Peer:
        """The peer; at ``max_t`` a trial is complete."""
        from optuna import pruners, samplers

        sampler: samplers.BaseSampler = samplers.GPSampler(seed=seed)
        if self.sampler == "tpe":
            sampler = samplers.TPESampler(seed=seed, multivariate=self.multivariate)
        pruner: pruners.BasePruner = pruners.HyperbandPruner(self.min_resource, max_t, self.reduction_factor)
        if self.pruner == "halving":
            pruner = pruners.SuccessiveHalvingPruner(self.min_resource, self.reduction_factor)
        rungs = (self.min_resource * self.reduction_factor**k for k in range(max_t.bit_length()))
        return OptunaStudy(space, sampler, pruner, rungs, seed)
