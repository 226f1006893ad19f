"""Regression by a Gaussian process with the Matérn 5/2 kernel, a length scale for each parameter, and known noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

_JITTER = 1e-8
_SQRT5 = math.sqrt(5)

_LENGTH_SD = math.sqrt(3)
"""Of the logarithm of a length scale; its mean is √2 + ln(d)/2 with d parameters (Hvarfner et al. 2024)."""
_NOISE_MEAN, _NOISE_SD = math.log(1e-3), 2.0
"""Of the logarithm of the noise's variance, where the values have variance 1."""
_SCALE_SD = 1.0
"""Of the logarithm of the kernel's variance, whose mean is 0."""
_MEAN_NOISE = 0.1
"""Added to the noise for the average of values, so that no few of them decide."""
_BOUNDS = {"length": (math.log(0.02), math.log(50.0)), "scale": (-4.0, 4.0), "noise": (math.log(1e-6), 0.0)}


@dataclass(frozen=True)
class Hyperparameters:
    """Logarithms: of the length scale of each parameter, of the kernel's variance, and of the noise's variance."""

    lengths: NDArray[np.float64]
    scale: float
    noise: float

    @classmethod
    def initial(cls, parameters: int) -> Hyperparameters:
        return cls(np.full(parameters, math.log(0.5)), 0.0, _NOISE_MEAN)

    def vector(self) -> NDArray[np.float64]:
        return np.append(self.lengths, [self.scale, self.noise])

    @classmethod
    def of(cls, vector: NDArray[np.float64]) -> Hyperparameters:
        return cls(vector[:-2], float(vector[-2]), float(vector[-1]))


class GaussianProcess:
    """The posterior given n points and their values.

    Args:
        points: n rows, one column a coordinate.
        parameter: Of each coordinate, the number of its parameter. Coordinates of a parameter have one length scale.
        values: n values, about standardised.
        noise: n known variances, in the units of the values' squares. Another noise is added to all.
        hyperparameters: As `fitted` finds them.
    """

    def __init__(
        self,
        points: NDArray[np.float64],
        parameter: NDArray[np.int64],
        values: NDArray[np.float64],
        noise: NDArray[np.float64],
        hyperparameters: Hyperparameters,
    ) -> None:
        self.hyperparameters = hyperparameters
        self._inverse_lengths = np.exp(-hyperparameters.lengths)[parameter]
        self._scaled = points * self._inverse_lengths
        self._variance = math.exp(hyperparameters.scale)
        covariance = self._kernel(self._scaled, self._scaled)
        covariance[np.diag_indices_from(covariance)] += noise + math.exp(hyperparameters.noise) + _JITTER
        self._factor = cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        self._mean = _mean(values, noise)
        self._weights = cho_solve((self._factor, True), values - self._mean, check_finite=False)

    def predict(self, points: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance, without noise, at each of ``points``."""
        cross = self._kernel(points * self._inverse_lengths, self._scaled)
        means = self._mean + cross @ self._weights
        half = solve_triangular(self._factor, cross.T, lower=True, check_finite=False)
        return means, np.maximum(self._variance - np.einsum("ij,ij->j", half, half), 1e-10)

    def _kernel(self, a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
        squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T
        r = _SQRT5 * np.sqrt(np.maximum(squares, 0))
        return np.asarray(self._variance * (1 + r + r * r / 3) * np.exp(-r))


def fitted(
    points: NDArray[np.float64],
    parameter: NDArray[np.int64],
    values: NDArray[np.float64],
    noise: NDArray[np.float64],
    start: Hyperparameters,
    iterations: int = 40,
) -> Hyperparameters:
    """The hyperparameters with the highest posterior density, found from ``start`` by L-BFGS.

    The other arguments are those of `GaussianProcess`.
    """
    parameters = len(start.lengths)
    squares = np.zeros((parameters, len(points), len(points)))
    for column, j in enumerate(parameter):
        difference = points[:, column, None] - points[:, column]
        squares[j] += difference * difference
    centred = values - _mean(values, noise)
    flat = squares.reshape(parameters, -1)
    length_mean = math.sqrt(2) + math.log(max(parameters, 1)) / 2

    def loss(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        inverse_squares = np.exp(-2 * vector[:-2])
        variance, extra = math.exp(vector[-2]), math.exp(vector[-1])
        r = _SQRT5 * np.sqrt(np.maximum(inverse_squares @ flat, 0)).reshape(len(points), -1)
        decay = variance * np.exp(-r)
        kernel = decay * (1 + r + r * r / 3)
        covariance = kernel.copy()
        covariance[np.diag_indices_from(covariance)] += noise + extra + _JITTER
        factor = cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        weights = cho_solve((factor, True), centred, check_finite=False)
        inverse = cho_solve((factor, True), np.eye(len(points)), check_finite=False)
        sensitivity = np.outer(weights, weights) - inverse  # twice the gradient in the covariance
        gradient = np.empty_like(vector)
        gradient[:-2] = 0.5 * inverse_squares * (flat @ (sensitivity * decay * (1 + r) * (5 / 3)).ravel())
        gradient[-2] = 0.5 * (sensitivity * kernel).sum()
        gradient[-1] = 0.5 * extra * np.trace(sensitivity)
        value = -0.5 * centred @ weights - np.log(np.diag(factor)).sum()
        length = vector[:-2] - length_mean
        value -= (vector[:-2] + length * length / (2 * _LENGTH_SD**2)).sum()  # of the length scale, not its logarithm
        gradient[:-2] -= 1 + length / _LENGTH_SD**2
        value -= vector[-2] ** 2 / (2 * _SCALE_SD**2) + (vector[-1] - _NOISE_MEAN) ** 2 / (2 * _NOISE_SD**2)
        gradient[-2] -= vector[-2] / _SCALE_SD**2
        gradient[-1] -= (vector[-1] - _NOISE_MEAN) / _NOISE_SD**2
        return -value, -gradient

    bounds = [_BOUNDS["length"]] * parameters + [_BOUNDS["scale"], _BOUNDS["noise"]]
    found = minimize(loss, start.vector(), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": iterations})
    return Hyperparameters.of(found.x)


def _mean(values: NDArray[np.float64], noise: NDArray[np.float64]) -> float:
    """The constant that the process varies around: noisy values count less."""
    return float(np.average(values, weights=1 / (noise + _MEAN_NOISE)))
