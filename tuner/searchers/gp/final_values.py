"""What a trial that was stopped would have reached: a chain of regressions from each level of fidelity to the next.

ASHA decides by the values that a trial reported. Given these, what it would have reported later does not depend on the
decision. So a regression of the next value on those before is not biased by what was stopped, while a mean over the
trials that survived is (monotone missing data: Anderson 1957).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_RATIO = 1.5
"""Of a level and the one before."""

_COEFFICIENT_SD = np.array([1.0, 0.3, 0.5])
"""Prior: standard deviations of intercept, factor of the value, and factor of the latest difference."""
_COEFFICIENT_MEAN = np.array([0.0, 1.0, 0.3])
_PRIOR_TRIALS, _PRIOR_SD = 2.0, 0.3
"""Prior of the residual: so many trials have shown that this is its standard deviation."""


def levels_up_to(max_t: int) -> tuple[int, ...]:
    """Fidelities about evenly spaced on a log scale, the last is ``max_t``."""
    found, level = {max_t}, float(max_t)
    while level > 1:
        level /= _RATIO
        found.add(max(1, round(level)))
    return tuple(sorted(found))


def extrapolate(
    values: NDArray[np.float64], learned: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of the value at the last level for each trial.

    Args:
        values: One row a trial, one column a level, in units in which the best trial is about 1 above the median; NaN
            above the level that the trial has reached. Each row has a value at the first level.
        learned: The rows that the regressions are fitted to.

    Returns:
        The means and the variances, one of each a trial; 0 is the variance of a trial that reached the last level.
    """
    trials, levels = values.shape
    mean, slope = values[:, 0].copy(), np.zeros(trials)
    state = np.zeros((trials, 2, 2))  # covariance of the value and of its latest difference
    for k in range(levels - 1):
        features = np.stack([np.ones(trials), mean, slope], axis=1)
        known = ~np.isnan(values[:, k + 1])
        fitted = known & learned
        weights, covariance, residual = _regression(features[fitted], values[fitted, k + 1])
        next_mean = features @ weights
        jacobian = np.array([[weights[1], weights[2]], [weights[1] - 1, weights[2]]])
        state = jacobian @ state @ jacobian.T
        state += (residual + np.einsum("ij,jk,ik->i", features, covariance, features))[:, None, None]
        slope = np.where(known, values[:, k + 1] - mean, next_mean - mean)
        mean = np.where(known, values[:, k + 1], next_mean)
        state[known] = 0
    return mean, state[:, 0, 0]


def _regression(
    features: NDArray[np.float64], targets: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Posterior mean and covariance of the coefficients, and the residual variance."""
    precision = np.diag(1 / _COEFFICIENT_SD**2)
    weights, posterior = _COEFFICIENT_MEAN, np.diag(_COEFFICIENT_SD**2)
    residual = _PRIOR_SD**2
    for _ in range(2):
        posterior = np.linalg.inv(precision + features.T @ features / residual)
        weights = posterior @ (precision @ _COEFFICIENT_MEAN + features.T @ targets / residual)
        errors = targets - features @ weights
        residual = float((_PRIOR_TRIALS * _PRIOR_SD**2 + errors @ errors) / (_PRIOR_TRIALS + len(targets)))
    return weights, posterior, residual
