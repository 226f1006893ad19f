"""A search space in Optuna's own distributions. Imported where a study is built only, because it imports Optuna."""

from __future__ import annotations

import math
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from tuner.spec.space import Choice, Domain, Float, Integer, Normal, Parameter, Path

_TAIL = 1e-9
"""The share of a normal distribution left out at each end: about 6 standard deviations from the mean."""

_MAX_STEPS = 10_000
"""Above so many separate values a range counts as continuous: GPSampler allocates an array of all of them."""


def key(path: Path) -> str:
    """The name of a parameter in a study."""
    return "/".join(path)


def distribution(domain: Domain) -> BaseDistribution:
    """What Optuna draws from; `suggest` makes it a value of ``domain``.

    Optuna rounds to a quantum in floats and knows none on a log scale, so it draws the multiple k of ``q`` instead; and
    it knows no normal distribution, so it draws the cumulative probability.
    """
    match domain:
        case Float(q=None):
            return FloatDistribution(float(domain.lower), float(domain.upper), log=domain.log)
        case Float(steps=(first, last)) | Integer(steps=(first, last)):
            if last - first < _MAX_STEPS:
                return IntDistribution(first, last, log=domain.log)
            return FloatDistribution(float(first), float(last) + 1.0, log=domain.log)  # rounded down by _decode
        case Normal():
            return FloatDistribution(_TAIL, 1 - _TAIL)
        case Choice():
            return CategoricalDistribution(range(len(domain.categories)))
    raise NotImplementedError(f"Optuna cannot draw from {domain}")


def encode(domain: Domain, value: Any) -> float | int:
    """What Optuna would have to draw for `suggest` to answer ``value``."""
    match domain:
        case Float(q=None):
            return float(value)
        case Float() | Integer():
            step = int(value // (domain.q or 1)) if isinstance(domain, Integer) else round(value / (domain.q or 1))
            return step if isinstance(distribution(domain), IntDistribution) else step + 0.5
        case Normal():
            return min(max(domain.to_unit(value), _TAIL), 1 - _TAIL)
        case Choice():
            return int(domain.to_unit(value) * domain.count)
    raise NotImplementedError(f"Optuna cannot draw from {domain}")


def suggest(trial: optuna.Trial, parameter: Parameter) -> Any:
    """The value of ``parameter`` that the sampler chooses for ``trial``."""
    return _decode(parameter.domain, _draw(trial, parameter))


def _draw(trial: optuna.Trial, parameter: Parameter) -> Any:
    match distribution(parameter.domain):
        case FloatDistribution(low=low, high=high, log=log):
            return trial.suggest_float(key(parameter.path), low, high, log=log)
        case IntDistribution(low=low, high=high, log=log):
            return trial.suggest_int(key(parameter.path), low, high, log=log)
        case CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(key(parameter.path), choices)
    raise NotImplementedError(parameter.name)


def _decode(domain: Domain, drawn: Any) -> Any:
    match domain:
        case Float(q=None):
            return float(drawn)
        case Float() | Integer():
            return domain.at(math.floor(drawn))
        case Normal():
            return domain.quantile(float(drawn))
    return domain.value(int(drawn))
