"""Which parameters matter: Optuna's PED-ANOVA over the trials of a run."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.visualization.axes import Axis, axes_of
from tuner.visualization.thinning import spread

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from optuna.trial import FrozenTrial

LEAST_TRIALS = 20
"""With fewer the best ones are too few to tell their parameters from chance."""

_LEAST_TOP = 5
"""Optuna's advice: so many trials among the best."""

_TOP = 0.1
"""gamma' in Watanabe et al. (2023): the share of trials that counts as the best; at least `_LEAST_TOP`."""


_MOST = 5000
"""Trials that are compared at most, evenly chosen by rank: Optuna copies each, and more tell no more."""


_REPEATS = 40
"""Draws for the interval of a share, and for what chance gives."""

_FEW = 200
"""Trials that these draws are of at most, evenly chosen by rank: each draw takes some 20 ms."""


@dataclass(frozen=True)
class Share:
    """How much one parameter separates the best trials from all, as a share of what all parameters do."""

    value: float
    low: float
    """5 % of the shares in bootstrap samples of the trials lie below."""
    high: float
    """95 % do."""
    is_chance: bool
    """Whether more than 5 % of the orders at random of the same trials give the parameter as much."""


@dataclass(frozen=True)
class Importance:
    """How much each parameter separates the best trials from all."""

    shares: dict[str, Share]
    """By parameter, largest first; their values add up to 1, or are all 0."""
    trials: int
    """Trials that were compared."""
    top: int
    """How many of them count as the best."""

    def of(self, name: str) -> float:
        """The share of the parameter called ``name``; 0 if nothing is known of it."""
        share = self.shares.get(name)
        return share.value if share else 0.0


def importance(results: ResultSet, trials: Sequence[Trial]) -> Importance | None:
    """Of ``trials``, which all have a result, best first; None if they are fewer than `LEAST_TRIALS`.

    PED-ANOVA (Watanabe et al. 2023; with conditional parameters as in its extension of 2026): the Pearson divergence
    between the densities of a parameter in the best trials and in all. It ranks trials and does not fit their values,
    so that values of trials that were stopped early, which are known to be bad and not how bad, do no harm.

    The interval and the comparison with chance take the trials for independent draws. Those of a search that learns are
    not, so both are surer than they should be.
    """
    axes = axes_of(results, trials)
    if len(trials) < LEAST_TRIALS or not axes:
        return None
    ranks = spread(range(len(trials)), _MOST)
    with _quiet():
        divergences = _Divergences([_frozen(axes, rank) for rank in ranks])
        found = divergences.of(range(len(ranks)))
        few = _Divergences([_frozen(axes, rank) for rank in spread(range(len(trials)), _FEW)])
        rng = np.random.default_rng(0)
        shares = [_shares(few.resampled(rng), found) for _ in range(_REPEATS)]
        observed = few.of(range(few.count))
        by_chance = [few.of(rng.permutation(few.count)) for _ in range(_REPEATS)]
    told = {}
    for name, value in sorted(_shares(found, found).items(), key=lambda item: -item[1]):
        low, high = np.quantile([share[name] for share in shares], (0.05, 0.95))
        as_much = np.mean([chance.get(name, 0.0) >= observed.get(name, 0.0) for chance in by_chance])
        told[name] = Share(value, min(float(low), value), max(float(high), value), bool(as_much > 0.05))
    return Importance(told, len(ranks), divergences.top)


class _Divergences:
    """Of trials that are given best first: Optuna's evaluator, asked with other orders of them."""

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        import optuna

        with _without_scikit_learn():
            from optuna.importance import PedAnovaImportanceEvaluator

        self._trials = trials
        self.count = len(trials)
        self.top = max(_LEAST_TOP, round(_TOP * self.count))
        self._study = optuna.create_study(direction="minimize")
        self._study.add_trials(trials)
        self._evaluator = PedAnovaImportanceEvaluator(target_quantile=self.top / self.count)

    def of(self, order: Sequence[int] | NDArray[np.int64]) -> dict[str, float]:
        """The divergence of each parameter if the trials had these ranks."""
        found: dict[str, float] = self._evaluator.evaluate(self._study, target=lambda trial: float(order[trial.number]))
        return found

    def resampled(self, rng: np.random.Generator) -> dict[str, float]:
        """The divergence of each parameter in as many of the trials, drawn with replacement."""
        drawn = np.sort(rng.integers(self.count, size=self.count))
        return _Divergences([self._trials[k] for k in drawn]).of(range(self.count))


def _shares(divergences: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    """Each of ``names`` as a share of the sum."""
    total = sum(divergences.values()) or 1.0
    return {name: float(divergences.get(name, 0.0) / total) for name in names}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Within: Optuna does not log, nor warn of branches of the space that few trials took, whose share is small."""
    import optuna

    logging = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(logging)


@contextlib.contextmanager
def _without_scikit_learn() -> Iterator[None]:
    """Within: optuna.importance is imported as if scikit-learn, 1 s of CPU, were not there: PED-ANOVA needs none of it.

    Whoever imports it later gets it whole.
    """
    if "sklearn" in sys.modules or "optuna.importance" in sys.modules:
        yield
        return
    import optuna

    missing: Any = None
    sys.modules["sklearn"], imports_when_used = missing, optuna.importance
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name == "sklearn" or name.startswith("optuna.importance")]:
            del sys.modules[name]
        optuna.importance = imports_when_used


def _frozen(axes: Sequence[Axis], rank: int) -> FrozenTrial:
    """The trial of that rank, with the rank as its value and its parameters' places on their axes."""
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
    from optuna.trial import create_trial

    params: dict[str, float] = {}
    distributions: dict[str, BaseDistribution] = {}
    for axis in axes:
        position = axis.positions[rank]
        if position is not None and axis.categories:
            params[axis.name] = int(position)
            distributions[axis.name] = CategoricalDistribution(range(len(axis.categories)))
        elif position is not None:
            params[axis.name] = min(max(axis.unit(position), 0.0), 1.0)
            distributions[axis.name] = FloatDistribution(0.0, 1.0)
    return create_trial(params=params, distributions=distributions, value=float(rank))
