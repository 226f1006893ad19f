"""The numeric domains: ranges of floats and integers, and normal distributions, each with or without a ``q``."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from statistics import NormalDist
from typing import Any

from tuner.spec.space.domains import Domain
from tuner.spec.values import is_number

MAX_STEPS = 2**53
"""Upper bound on |bound / q|: beyond it a float cannot tell two neighbouring multiples of ``q`` apart."""

_TAIL = 1e-15
"""The share of a normal distribution that `Normal.from_unit` leaves out at each end: 8 standard deviations away."""

_TAILS = 40
"""Standard deviations from the mean that a normal domain must be able to hold in a float."""


@dataclass(frozen=True)
class Float(Domain):
    """``uniform``, ``quniform``, ``loguniform``, ``qloguniform``: a range of floats, both ends included.

    With ``q``, a value drawn from the range is rounded to the nearest multiple of ``q``. The two ends are therefore
    half as likely as the rest, as in Ray. The result is the float nearest to the decimal product: 0.3, and not
    0.30000000000000004.
    """

    lower: float
    upper: float
    q: float | None = None
    log: bool = False

    @property
    def name(self) -> str:
        return f"{'q' if self.q is not None else ''}{'log' if self.log else ''}uniform"

    @property
    def steps(self) -> tuple[int, int] | None:
        """The first and the last k for which ``k * q`` belongs to the domain; None without ``q``."""
        return None if self.q is None else (round(self.lower / self.q), round(self.upper / self.q))

    def at(self, step: int) -> float:
        """The value ``step * q``; a step beyond the ends counts as the end."""
        if self.q is None or self.steps is None:
            raise LookupError(f"{self} has no steps")
        if step <= self.steps[0]:
            return float(self.lower)
        return float(self.upper) if step >= self.steps[1] else _multiple(step, self.q)

    def from_unit(self, u: float) -> float:
        if self.log:
            drawn = math.exp(math.log(self.lower) + u * (math.log(self.upper) - math.log(self.lower)))
        else:
            drawn = self.lower + u * (self.upper - self.lower)
        # exp(log(x)) may miss x by one rounding
        drawn = float(min(max(drawn, self.lower), self.upper))
        return drawn if self.q is None else self.at(round(drawn / self.q))

    def to_unit(self, value: Any) -> float:
        if self.log:
            return math.log(value / self.lower) / math.log(self.upper / self.lower)
        return float((value - self.lower) / (self.upper - self.lower))

    def contains(self, value: Any) -> bool:
        if not is_number(value) or not self.lower <= value <= self.upper:
            return False
        return self.q is None or _near(value, self.at(round(value / self.q)), self.q)

    def probes(self) -> tuple[float, float]:
        return float(self.lower), float(self.upper)

    @property
    def count(self) -> int | None:
        return None if self.steps is None else self.steps[1] - self.steps[0] + 1

    def value(self, index: int) -> float:
        return self.at((self.steps or (0, 0))[0] + index)

    def problems(self) -> Iterator[tuple[str, str]]:
        infinite = list(_infinite(lower=self.lower, upper=self.upper, q=self.q))
        if infinite:
            yield from infinite
            return
        yield from _range_problems(self.lower, self.upper, self.log)
        if not _is_finite(float(self.upper) - float(self.lower)):
            yield "upper", f"the range from {self.lower} to {self.upper} is wider than a float can hold"
        if self.q is None:
            return
        if self.q <= 0:
            yield "q", f"the quantum must be above 0, not {self.q}"
        elif max(abs(self.lower), abs(self.upper)) / self.q > MAX_STEPS:
            yield "q", f"the quantum {self.q} is too small: a float cannot tell its multiples apart in this range"
        else:
            for argument, bound in (("lower", self.lower), ("upper", self.upper)):
                if not math.isclose(bound / self.q, round(bound / self.q)):
                    nearest = _multiple(round(bound / self.q), self.q)
                    yield argument, f"{bound} is not a multiple of the quantum {self.q}: write {nearest}, or change q"

    def to_yaml(self) -> Any:
        return {self.name: [self.lower, self.upper, *([] if self.q is None else [self.q])]}


@dataclass(frozen=True)
class Integer(Domain):
    """``randint``, ``lograndint``: integers from ``lower`` to ``upper - 1``.

    ``qrandint``, ``qlograndint``: the multiples of ``q`` from ``lower`` to ``upper``, which belongs to them except for
    ``q`` 1 (Ray's rule).
    """

    lower: int
    upper: int
    q: int | None = None
    log: bool = False

    @property
    def name(self) -> str:
        return f"{'q' if self.q is not None else ''}{'log' if self.log else ''}randint"

    @property
    def steps(self) -> tuple[int, int]:
        """The first and the last k for which ``k * q`` belongs to the domain (``q`` 1 where it has none)."""
        if self.q is None or self.q == 1:
            return self.lower, self.upper - 1
        return -(-self.lower // self.q), self.upper // self.q

    def at(self, step: int) -> int:
        """The value ``step * q``; a step beyond the ends counts as the end."""
        first, last = self.steps
        return min(max(int(step), first), last) * (self.q or 1)

    def from_unit(self, u: float) -> int:
        first, last = self.steps
        if self.log:
            return self.at(math.floor(math.exp(math.log(first) + u * (math.log(last + 1) - math.log(first)))))
        return self.at(first + math.floor(u * (last + 1 - first)))

    def to_unit(self, value: Any) -> float:
        first, last = self.steps
        step = value // (self.q or 1)
        if self.log:
            below, above = math.log(step / first), math.log((step + 1) / first)
            return (below + above) / 2 / math.log((last + 1) / first)
        return float((step + 0.5 - first) / (last + 1 - first))

    def contains(self, value: Any) -> bool:
        first, last = self.steps
        step = self.q or 1
        return is_number(value) and isinstance(value, int) and value % step == 0 and first <= value // step <= last

    def probes(self) -> tuple[int, int]:
        return self.at(self.steps[0]), self.at(self.steps[1])

    @property
    def count(self) -> int:
        return self.steps[1] - self.steps[0] + 1

    def value(self, index: int) -> int:
        return self.at(self.steps[0] + index)

    def problems(self) -> Iterator[tuple[str, str]]:
        for argument, number in (("lower", self.lower), ("upper", self.upper), ("q", self.q)):
            if number is not None and not -(2**63) <= number < 2**63:
                yield argument, "the number does not fit into 64 bits"
                return
        note = " (which is exclusive)" if self.q in (None, 1) else ""
        yield from _range_problems(self.lower, self.upper, self.log, note)
        if self.q is not None and self.q <= 0:
            yield "q", f"the quantum must be above 0, not {self.q}"
        elif self.q is not None:
            for argument, bound in (("lower", self.lower), ("upper", self.upper)):
                if bound % self.q:
                    nearest = round(bound / self.q) * self.q
                    yield argument, f"{bound} is not a multiple of the quantum {self.q}: write {nearest}, or change q"

    def to_yaml(self) -> Any:
        return {self.name: [self.lower, self.upper, *([] if self.q is None else [self.q])]}


@dataclass(frozen=True)
class Normal(Domain):
    """``randn``, ``qrandn``: normally distributed floats, with ``q`` rounded to its multiples; there are no ends."""

    mean: float = 0.0
    sd: float = 1.0
    q: float | None = None

    @property
    def name(self) -> str:
        return "randn" if self.q is None else "qrandn"

    def quantile(self, probability: float) -> float:
        """The value below which a share ``probability``, in (0, 1), of all draws lies; rounded to ``q``."""
        return self._rounded(NormalDist(self.mean, self.sd).inv_cdf(probability))

    def from_unit(self, u: float) -> float:
        return self.quantile(min(max(u, _TAIL), 1 - _TAIL))

    def to_unit(self, value: Any) -> float:
        return NormalDist(self.mean, self.sd).cdf(value)

    def contains(self, value: Any) -> bool:
        return is_number(value) and _is_finite(value) and (self.q is None or _near(value, self._rounded(value), self.q))

    def probes(self) -> tuple[float, ...]:
        return tuple(self._rounded(self.mean + z * self.sd) for z in (-3.0, 0.0, 3.0))

    def problems(self) -> Iterator[tuple[str, str]]:
        infinite = list(_infinite(mean=self.mean, sd=self.sd, q=self.q))
        if infinite:
            yield from infinite
            return
        if self.sd <= 0:
            yield "sd", f"the standard deviation must be above 0, not {self.sd}"
        elif not _is_finite(abs(float(self.mean)) + _TAILS * float(self.sd)):
            yield "sd", f"the standard deviation {self.sd} is too large: values would overflow"
        if self.q is not None and self.q <= 0:
            yield "q", f"the quantum must be above 0, not {self.q}"
        elif self.q is not None and (abs(float(self.mean)) + _TAILS * float(self.sd)) / self.q > MAX_STEPS:
            yield "q", f"the quantum {self.q} is too small: a float cannot tell its multiples apart in this range"

    def to_yaml(self) -> Any:
        return {self.name: [self.mean, self.sd, *([] if self.q is None else [self.q])]}

    def _rounded(self, value: float) -> float:
        return float(value) if self.q is None else _multiple(round(value / self.q), self.q)


def _is_finite(number: float) -> bool:
    """math.isfinite, which raises on an int beyond the floats."""
    return -sys.float_info.max <= number <= sys.float_info.max


def _infinite(**arguments: float | None) -> Iterator[tuple[str, str]]:
    for name, number in arguments.items():
        if number is not None and not _is_finite(number):
            yield name, f"{name} must be a finite number"


def _range_problems(lower: float, upper: float, log: bool, note: str = "") -> Iterator[tuple[str, str]]:
    if lower >= upper:
        yield "upper", f"the range is empty: lower {lower} is not below upper {upper}{note}"
    if log and lower <= 0:
        yield "lower", f"a logarithmic range must start above 0, not at {lower}"


def _multiple(step: int, q: float) -> float:
    """``step * q`` as the float nearest to the decimal product."""
    return float(step * Decimal(repr(float(q))))


def _near(value: float, expected: float, q: float) -> bool:
    return math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-6 * q)
