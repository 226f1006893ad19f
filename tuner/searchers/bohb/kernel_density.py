"""Kernel density estimates over a space whose parameters may be inactive: what `tuner.searchers.bohb.searcher` models
with.

A point is a row of `Domain.to_unit`, one column a free parameter, NaN if the parameter is inactive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_UNIFORM_VARIANCE = 1 / 12
"""Of a uniform distribution on [0, 1]: what the variance of a parameter is taken for before any point is known."""


@dataclass(frozen=True)
class KernelDensity:
    """A mixture of product kernels, one a point, with a factor for each parameter.

    The factor of a number is a Gaussian truncated to [0, 1], that of a category the kernel of Aitchison and Aitken
    (1976): with probability λ it is one of the others. A point that lacks a parameter says nothing of it: its factor
    there is 1, the density of the domain itself. So is the factor of a parameter that the evaluated configuration
    lacks, which is thereby integrated out. The whole is a proper density over the space with its conditions.
    """

    points: Floats
    """n rows of d parameters."""
    categories: tuple[int, ...]
    """Of each parameter: how many categories it has; 0 for a number."""
    bandwidths: Floats
    """Of each parameter: h, the standard deviation of its Gaussian before truncation, or λ."""

    @classmethod
    def fit(cls, points: Floats, categories: tuple[int, ...], doubt: int, min_bandwidth: float) -> KernelDensity:
        """Bandwidths by the normal reference rule (Scott 1992): h = 1.06 s n^(-1/(4+d)), at least ``min_bandwidth``.

        The variance s² is estimated as if ``doubt`` more points had been seen, spread uniformly over the domain: so a
        few points that lie close together by chance have little effect. For c categories λ = (1 - 1/c) n^(-2/(4+d)). It
        shrinks as h² does (Li and Racine 2003), from the value at which all categories are alike.
        """
        import numpy as np

        present = np.isfinite(points)
        n = present.sum(axis=0)
        mean = np.where(present, points, 0.0).sum(axis=0) / np.maximum(n, 1)
        squares = np.where(present, (points - mean) ** 2, 0.0).sum(axis=0)
        sigma = np.sqrt((squares + doubt * _UNIFORM_VARIANCE) / (n + doubt))
        shrinkage = np.maximum(n, 1) ** (-1 / (4 + len(categories)))
        h = np.maximum(1.06 * sigma * shrinkage, min_bandwidth)
        c = np.array(categories)
        return cls(points, categories, np.where(c > 0, (1 - 1 / np.maximum(c, 1)) * shrinkage**2, h))

    def sample(self, rng: Generator, count: int, factor: float) -> Floats:
        """``count`` draws, each around one of the points, h widened by ``factor``.

        A parameter that this point lacks is drawn from its domain.
        """
        import numpy as np
        from scipy.special import ndtr, ndtri

        drawn = self.points[rng.integers(len(self.points), size=count)]
        u = rng.random(drawn.shape)
        for j, (c, h) in enumerate(zip(self.categories, self.bandwidths, strict=True)):
            x = drawn[:, j]
            if c:
                others = (x + rng.integers(1, max(c, 2), size=count) / c) % 1.0
                drawn[:, j] = np.where(u[:, j] < h, others, x)
            else:
                below, above = ndtr(-x / (factor * h)), ndtr((1 - x) / (factor * h))
                drawn[:, j] = np.clip(x + factor * h * ndtri(below + u[:, j] * (above - below)), 0.0, 1.0)
        return np.where(np.isnan(drawn), u, drawn)

    def log_density(self, points: Floats) -> Floats:
        """Of each of ``points``: the logarithm of the density, 0 where it is that of the domains themselves."""
        import numpy as np
        from scipy.special import logsumexp, ndtr

        total = np.zeros((len(points), len(self.points)))
        for j, (c, h) in enumerate(zip(self.categories, self.bandwidths, strict=True)):
            x, centres = points[:, j, None], self.points[None, :, j]
            if c:
                distance = np.abs(x - centres)
                factor = np.log(np.where(distance < 0.5 / c, (1 - h) * c, h * c / max(c - 1, 1)))
                factor = np.where(np.isnan(distance), np.nan, factor)
            else:
                inside = ndtr((1 - centres) / h) - ndtr(-centres / h)
                factor = -(((x - centres) / h) ** 2) / 2 - np.log(np.sqrt(2 * np.pi) * h * inside)
            total += np.where(np.isnan(factor), 0.0, factor)
        density: Floats = logsumexp(total, axis=1) - np.log(len(self.points))
        return density
