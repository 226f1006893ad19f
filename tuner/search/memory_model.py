"""How much memory a configuration will need, from the peaks of earlier trials: which micro-batch fits.

A trial's peak is a part that its micro-batch does not change (weights, moments, what libraries take) and a part for
each example of it. The logarithm of each part is linear in the logarithms of the parameters, as tensors are products of
sizes. An attempt that ran out of memory counts too: it needed more than there is (a censored observation, Tobin 1958).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from tuner.runs.failure import MemoryKind
from tuner.runs.trial import Trial
from tuner.spec.configuration import flat
from tuner.spec.values import represented

FITS = 2.05
"""Standard deviations by which what is expected lies below what there is: 98 of 100 such trials fit."""
LATEST = 150
"""Attempts that the model looks at."""
_POWER = 0.0, 1.0
"""Mean and standard deviation of the power with which either part grows in a parameter, before any trial."""
_LEVEL_SD = 3.0
"""Of the logarithm of either part; its mean is half of the least peak for the first, and for all of a micro-batch."""
_NOISE = 0.1, 3.0
"""Standard deviation of a logarithm about what the parameters say, and as many trials as this belief weighs."""
_MOST_CHOICES = 10
"""Values of a parameter without numbers that the model tells apart."""
_LARGEST = 1e100
"""A number beyond it is taken as a choice."""
_ROUNDS = 8
"""Of imputing what censored attempts needed."""


@dataclass(frozen=True)
class Attempt:
    """One attempt at a trial."""

    config: Mapping[str, Any]
    """Parameters by dotted name."""
    micro_batch: int
    peak: float | None
    """Of its memory; None if it ran out of it."""


def attempts_of(trial: Trial, micro_batch: int, kind: MemoryKind) -> list[Attempt]:
    """Those of ``trial`` that tell of its memory of this kind; ``micro_batch``: the one that it was suggested with.

    A peak counts if no earlier attempt of the trial came to a report: it would be among the peaks of the latest one.
    """
    config = dict(flat(trial.first_config))
    halved = [f.micro_batch for f in trial.failures if f.kind == kind and f.micro_batch is not None]
    found = [Attempt(config, 2 * half, None) for half in halved]
    consumption = trial.reports[-1].consumption if trial.reports else None
    if consumption is not None and not any(failure.step for failure in trial.failures):
        peak = consumption.peak_gpu_gib if kind == "GPU memory" else consumption.peak_host_gib
        if peak:
            found.append(Attempt(config, trial.micro_batch or micro_batch, peak))
    return found


def fitting_micro_batch(
    attempts: Sequence[Attempt], config: Mapping[str, Any], micro_batch: int, capacity: float | None = None
) -> int:
    """``micro_batch``, or the largest of its halves with which ``config`` is expected to fit; 1 if none is.

    ``capacity``, in the unit of the peaks, is what there is; None: not known, so that only what did fit is sure to fit.
    As it is too while no attempt ran out of memory, or none came to its end.
    """
    usable = [one for one in attempts if one.micro_batch >= 1 and (one.peak is None or 0 < one.peak < math.inf)]
    peaks = [attempt.peak for attempt in usable if attempt.peak is not None]
    if micro_batch < 2 or not peaks or len(peaks) == len(usable):
        return micro_batch
    attempts = usable[-LATEST:]
    limit = math.log(max(max(peaks), capacity or 0.0))
    features = _Features([*attempts, Attempt(config, micro_batch, None)])
    model = _Fit(
        np.array([features.of(attempt.config) for attempt in attempts]),
        np.log([attempt.micro_batch for attempt in attempts]),
        np.array([limit if attempt.peak is None else math.log(attempt.peak) for attempt in attempts]),
        np.array([attempt.peak is None for attempt in attempts]),
    )
    row, expected = features.of(config), micro_batch
    while expected > 1 and not model.is_below(row, expected, limit, 0.0):
        expected //= 2
    sure = expected
    while sure > 1 and not model.is_below(row, sure, limit, FITS):
        sure //= 2
    return max(sure, expected // 2, 1)  # a model that knows little must not make trials slow


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST


class _Features:
    """Numbers of a configuration: its numeric parameters, logarithms if all are positive, and an indicator a choice."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        values: dict[str, list[Any]] = {}
        for attempt in attempts:
            for name, value in attempt.config.items():
                values.setdefault(name, []).append(value)
        self._numbers: dict[str, tuple[bool, float, float]] = {}
        self._choices: list[tuple[str, Any]] = []
        for name, seen in values.items():
            if all(_is_number(value) for value in seen):
                is_log = min(seen) > 0
                own = [math.log(value) if is_log else value for value in seen]
                self._numbers[name] = is_log, float(np.mean(own)), 1.0 if is_log else (max(own) - min(own)) or 1.0
            else:
                frequent = Counter(map(represented, seen)).most_common(_MOST_CHOICES)
                self._choices += [(name, value) for value, _ in frequent[1:]]

    def of(self, config: Mapping[str, Any]) -> list[float]:
        """The row of a configuration; a parameter that it lacks is at its mean."""
        row = [1.0]
        for name, (is_log, mean, scale) in self._numbers.items():
            value = config.get(name)
            row.append(0.0 if value is None else ((math.log(value) if is_log else value) - mean) / scale)
        return row + [float(name in config and represented(config[name]) == value) for name, value in self._choices]


class _Fit:
    """The most probable coefficients, and their covariance there (Laplace); censored values are imputed meanwhile."""

    def __init__(self, x: np.ndarray, log_size: np.ndarray, y: np.ndarray, censored: np.ndarray) -> None:
        least, size = float(y.min()) + math.log(0.5), float(log_size.mean())
        level, power = [0.0], [_POWER[0]] * (x.shape[1] - 1)
        self._means = np.array([*level, *power, *level, *power])
        self._means[[0, x.shape[1]]] = least, least - size
        self._sds = np.full(2 * x.shape[1], _POWER[1])
        self._sds[[0, x.shape[1]]] = _LEVEL_SD
        self._at = self._means
        sd, weight = _NOISE
        filled = y.copy()
        for _ in range(_ROUNDS):
            self._solve(x, log_size, filled, sd)
            expected, _ = self._expected(self._at, x, log_size)
            above = (y - expected) / sd
            filled = np.where(censored, expected + sd * _mills(above), y)
            spread = np.where(censored, sd**2 * (1 + _mills(above) * (above - _mills(above))), 0.0)
            squares = float(((filled - expected) ** 2 + spread).sum())
            sd = math.sqrt((squares + weight * _NOISE[0] ** 2) / (len(y) + weight))
        self._sd = sd

    def is_below(self, row: Sequence[float], micro_batch: int, limit: float, deviations: float) -> bool:
        """Whether what ``row`` needs lies by so many standard deviations below ``limit``."""
        expected, slopes = self._expected(self._at, np.array([row]), np.log([micro_batch]))
        deviation = math.sqrt(self._sd**2 + float(slopes[0] @ self._covariance @ slopes[0]))
        return float(expected[0]) + deviations * deviation <= limit

    def _solve(self, x: np.ndarray, log_size: np.ndarray, y: np.ndarray, sd: float) -> None:
        def residuals(at: np.ndarray) -> np.ndarray:
            return np.concatenate([(self._expected(at, x, log_size)[0] - y) / sd, (at - self._means) / self._sds])

        def slopes(at: np.ndarray) -> np.ndarray:
            return np.vstack([self._expected(at, x, log_size)[1] / sd, np.diag(1 / self._sds)])

        found = least_squares(residuals, self._at, slopes, method="lm", max_nfev=50)
        self._at, jacobian = found.x, slopes(found.x)
        self._covariance = np.linalg.inv(jacobian.T @ jacobian)

    @staticmethod
    def _expected(at: np.ndarray, x: np.ndarray, log_size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of the peaks, and their derivatives by the coefficients of either part."""
        fixed, each = x @ at[: x.shape[1]], x @ at[x.shape[1] :] + log_size
        both = np.logaddexp(fixed, each)
        share = np.exp(fixed - both)[:, None]
        return both, np.hstack([share * x, (1 - share) * x])


def _mills(z: np.ndarray) -> np.ndarray:
    """How far a standard normal that is above ``z`` lies at on average: density over survival."""
    from scipy.stats import norm

    return np.asarray(np.exp(norm.logpdf(z) - norm.logsf(z)))
