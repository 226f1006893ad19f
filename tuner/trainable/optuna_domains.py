"""Optuna's distributions as domains of an experiment file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_MOST = 10_000
"""Values of a range that is written as a choice at most."""


def contains(distribution: BaseDistribution, value: Any) -> bool:
    """Whether the objective could have been given ``value``."""
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except (TypeError, ValueError):  # a value of another type, or none of the choices
        return False


def as_text(distribution: BaseDistribution) -> str:
    """As in an experiment file: ``{loguniform: [0.001, 0.1]}``."""
    ((name, values),) = domain_of(distribution).items()
    return f"{{{name}: {json.dumps(values, default=repr)}}}"


def domain_of(distribution: BaseDistribution) -> dict[str, list[Any]]:
    """The domain with the same values: ``{"loguniform": [0.001, 0.1]}``.

    Optuna counts steps from the lower bound, Ray Tune from 0: a range for which these differ becomes a choice.
    Raises ValueError if that has too many values.
    """
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        return {"choice": list(distribution.choices)}
    found: Any = distribution
    if found.low == found.high:
        return {"choice": [found.low]}
    log = "log" if found.log else ""
    if isinstance(distribution, IntDistribution) and found.step == 1:
        return {f"{log}randint": [found.low, found.high + 1]}
    if found.step is None:
        return {f"{log}uniform": [found.low, found.high]}
    if not found.low % found.step:
        kind = "randint" if isinstance(distribution, IntDistribution) else "uniform"
        return {f"q{kind}": [found.low, found.high, found.step]}
    count = round((found.high - found.low) / found.step) + 1
    if count > _MOST:
        raise ValueError(f"{distribution} has {count:,} values that are not multiples of its step")
    return {"choice": [found.low + i * found.step for i in range(count)]}
