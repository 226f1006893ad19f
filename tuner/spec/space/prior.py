"""The user's belief about the optimum of one parameter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

from tuner.spec.space.domains import Choice, Domain
from tuner.spec.space.ranges import Float, Integer, Normal
from tuner.spec.values import brief

if TYPE_CHECKING:
    from numpy.random import Generator

Confidence = Literal["low", "medium", "high"]

_SPREADS: dict[Confidence, float] = {"low": 0.5, "medium": 0.25, "high": 0.125}
"""Standard deviation of the normal distribution around the believed optimum, as a share of the domain."""

_WEIGHTS: dict[Confidence, float] = {"low": 2.0, "medium": 4.0, "high": 8.0}
"""How many times likelier the believed category is than each other one."""

_NARROW = 1e-6
"""In a cell narrower than this a density is constant, and the difference of two probabilities would lose digits."""


@dataclass(frozen=True)
class Prior:
    """``prior: 1e-2, confidence: high``: a distribution over a domain that has its mode at ``value``.

    As the expert priors of PriorBand (Mallik et al. 2023, section 3): a normal distribution around ``value``, cut at
    the ends of the domain. Its scale is that on which the domain is uniform (``loguniform`` has its prior in log
    space). For ``choice``, ``value`` is a few times likelier than each other category.
    """

    value: Any
    confidence: Confidence = "medium"

    def sample(self, domain: Domain, rng: Generator) -> Any:
        """One value of ``domain``, of a plain Python type."""
        return self.from_unit(domain, rng.random())

    def mode(self, domain: Domain) -> Any:
        """The likeliest value of ``domain``: the believed one, or the nearest to it on a grid."""
        return domain.from_unit(domain.to_unit(self.value))

    def from_unit(self, domain: Domain, u: float) -> Any:
        """The value below which a share ``u`` in [0, 1] of the prior's probability lies (see `Domain.from_unit`)."""
        if isinstance(domain, Choice):
            shares = self._shares(domain)
            for i, share in enumerate(shares):
                u -= share
                if u < 0:
                    return domain.value(i)
            return domain.value(len(shares) - 1)
        normal, below, inside = self._normal(domain)
        probability = min(max(below + u * inside, 1e-300), 1 - 1e-16)  # inv_cdf knows no 0 and no 1
        return domain.from_unit(min(max(normal.inv_cdf(probability), 0.0), 1.0))

    def density(self, domain: Domain, value: Any) -> float:
        """How many times likelier ``value`` is under the prior than in the domain itself.

        Its mean over the domain's own draws is 1. ``value`` must belong to ``domain``.
        """
        if isinstance(domain, Choice):
            return self._shares(domain)[int(domain.to_unit(value) * domain.count)] * domain.count
        normal, _, inside = self._normal(domain)
        lower, upper = _cell(domain, value)
        if upper - lower < _NARROW:
            return normal.pdf(domain.to_unit(value)) / inside
        return (normal.cdf(upper) - normal.cdf(lower)) / (upper - lower) / inside

    def _normal(self, domain: Domain) -> tuple[NormalDist, float, float]:
        """The distribution in unit space, and its shares below 0 and inside [0, 1]."""
        normal = NormalDist(domain.to_unit(self.value), _SPREADS[self.confidence])
        below = normal.cdf(0.0)
        return normal, below, normal.cdf(1.0) - below

    def _shares(self, domain: Choice) -> list[float]:
        """The probability of each category."""
        weights = [1.0] * domain.count
        weights[int(domain.to_unit(self.value) * domain.count)] = _WEIGHTS[self.confidence]
        return [weight / sum(weights) for weight in weights]

    def __str__(self) -> str:
        return f"prior {brief(self.value)} (confidence {self.confidence})"


def _cell(domain: Domain, value: Any) -> tuple[float, float]:
    """The part of [0, 1] for which `Domain.from_unit` gives ``value``; of no width where values are continuous."""
    centre = domain.to_unit(value)
    match domain:
        case Integer(log=True, steps=(first, last)):
            half = math.log1p(1 / (value // (domain.q or 1))) / math.log((last + 1) / first) / 2
            return centre - half, centre + half
        case Integer():
            return centre - 0.5 / domain.count, centre + 0.5 / domain.count
        case Float(q=float() | int() as q):
            lower, upper = max(value - q / 2, domain.lower), min(value + q / 2, domain.upper)
            return domain.to_unit(lower), domain.to_unit(upper)
        case Normal(q=float() | int() as q):
            return domain.to_unit(value - q / 2), domain.to_unit(value + q / 2)
    return centre, centre
