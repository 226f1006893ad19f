"""Which parameters matter: Optuna's PED-ANOVA over the trials of a run."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.visualization.axes import Axis, axes_of
from tuner.visualization.thinning import spread

LEAST_TRIALS = 20
"""With fewer the best ones are too few to tell their parameters from chance."""

_LEAST_TOP = 5
"""Optuna's advice: so many trials among the best."""

_TOP = 0.1
"""gamma' in Watanabe et al. (2023): the share of trials that counts as the best; at least `_LEAST_TOP`."""


_MOST = 5000
"""Trials that are compared at most, evenly chosen by rank: Optuna copies each, and more tell no more."""


@dataclass(frozen=True)
class Importance:
    """How much each parameter separates the best trials from all."""

    shares: dict[str, float]
    """By parameter, largest first; they add up to 1, or are all 0."""
    trials: int
    """Trials that were compared."""
    top: int
    """How many of them count as the best."""


def importance(results: ResultSet, trials: Sequence[Trial]) -> Importance | None:
    """Of ``trials``, which all have a result, best first; None if they are fewer than `LEAST_TRIALS`.

    PED-ANOVA (Watanabe et al. 2023; with conditional parameters as in its extension of 2026): the Pearson divergence
    between the densities of a parameter in the best trials and in all. It ranks trials and does not fit their values,
    so that values of trials that were stopped early, which are known to be bad and not how bad, do no harm.
    """
    axes = axes_of(results, trials)
    if len(trials) < LEAST_TRIALS or not axes:
        return None
    import optuna

    with _without_scikit_learn():
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    ranks = spread(range(len(trials)), _MOST)
    top = max(_LEAST_TOP, round(_TOP * len(ranks)))
    logging = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(direction="minimize")
    finally:
        optuna.logging.set_verbosity(logging)
    study.add_trials(_frozen(axes, rank) for rank in ranks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of branches of the space that few trials took: their share is small
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=top / len(ranks)))
    ordered = sorted(found.items(), key=lambda item: -item[1])
    return Importance({name: float(share) for name, share in ordered}, len(ranks), top)


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


def _frozen(axes: Sequence[Axis], rank: int) -> object:
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
