"""Means of a few repetitions, with what they leave open."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95
"""How often an interval holds the true mean, where values are normally distributed."""


_ROUNDING = 1e-12
"""Share of a mean that may come from rounding."""


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval (Student 1908): mean ± t(n - 1) · s / √n."""

    mean: float
    half_width: float | None
    """None for a single value, which has no interval."""
    n: int
    """Number of values."""

    @property
    def holds_zero(self) -> bool:
        """Whether 0 may be the true mean; True if nothing is known of its spread."""
        return self.half_width is None or abs(self.mean) <= self.half_width

    def __str__(self) -> str:
        if self.half_width is None:
            return f"{self.mean:.4g} (n=1: no interval)"
        if not _ROUNDING * abs(self.mean) < self.half_width < math.inf:
            return f"{self.mean:.4g} ± {self.half_width:.0f}"
        decimals = max(0, 1 - math.floor(math.log10(self.half_width)))  # two digits of the half width
        return f"{self.mean:.{decimals}f} ± {self.half_width:.{decimals}f}"


def interval(values: Sequence[float]) -> Interval:
    """Of at least one value."""
    from scipy.stats import t

    n, mean = len(values), statistics.fmean(values)
    if n == 1:
        return Interval(mean, None, n)
    return Interval(mean, float(t.ppf((1 + LEVEL) / 2, n - 1)) * statistics.stdev(values) / math.sqrt(n), n)
