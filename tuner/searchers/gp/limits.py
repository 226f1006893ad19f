"""Outcome constraints as a Gaussian process each: how probable it is that a configuration keeps them.

Gardner et al. 2014, "Bayesian Optimization with Inequality Constraints": the expected improvement over the best
feasible trial is multiplied by the probability that all constraints are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from tuner.searchers.gp.gaussian_process import GaussianProcess, Hyperparameters, fitted

Array = NDArray[np.float64]

_CLIP = 3.0
"""A margin counts as at most so many times the median distance from the limit."""

_AT_LIMIT = 0.1
"""A margin of exactly 0, as of ``errors <= 0``, counts as so many times that distance: it is kept, and no matter of
chance."""

_LARGEST = 1e30
"""As margins are squared."""


class Limits:
    """The margins of all trials, and the hyperparameters of the process of each constraint."""

    def __init__(self) -> None:
        self._margins: dict[str, Array] = {}
        """Of each trial with a report: by how much it keeps each constraint, negative if it breaks it."""
        self._broken: set[str] = set()
        """The trials that break a constraint."""
        self._hyperparameters: dict[int, Hyperparameters] = {}
        """By the number of the constraint."""

    def record(self, trial_id: str, margins: tuple[float, ...]) -> None:
        """Takes note of a trial's latest report."""
        self._margins[trial_id] = np.clip(margins, -_LARGEST, _LARGEST)
        if min(margins) >= 0:
            self._broken.discard(trial_id)
        else:
            self._broken.add(trial_id)

    def kept_by(self, trials: Iterable[str]) -> NDArray[np.bool_]:
        """Which of ``trials`` keep all constraints; all of them if there are none."""
        return np.array([trial not in self._broken for trial in trials], dtype=bool)

    def processes(
        self, trials: Sequence[str], features: Array, waiting: Array, parameter: NDArray[np.int64], refit: bool
    ) -> tuple[list[GaussianProcess], NDArray[np.bool_]]:
        """One of each constraint, with a margin of 0 at 0; and which trials without a report are expected to keep all.

        Args:
            trials: Those to fit them to.
            features: One row of each trial.
            waiting: One row of each trial without a report, which counts with the margin that is expected of it.
            parameter: As of `GaussianProcess`.
            refit: Whether hyperparameters are found anew.
        """
        found, noise, expected = list[GaussianProcess](), np.zeros(len(features)), np.ones(len(waiting), dtype=bool)
        if not self._margins:
            return found, expected
        for number, margins in enumerate(np.array([self._margins[trial] for trial in trials]).T):
            scale = float(np.median(np.abs(margins))) or float(np.abs(margins).max()) or 1.0
            scaled = np.clip(margins / scale, -_CLIP, _CLIP)
            scaled[margins == 0] = _AT_LIMIT
            known = self._hyperparameters.get(number, Hyperparameters.initial(int(parameter.max()) + 1))
            if refit or number not in self._hyperparameters:
                known = self._hyperparameters[number] = fitted(features, parameter, scaled, noise, known)
            process = GaussianProcess(features, parameter, scaled, noise, known)
            if len(waiting):
                means = process.predict(waiting)[0]
                expected &= means >= 0
                points, values = np.concatenate([features, waiting]), np.append(scaled, means)
                process = GaussianProcess(points, parameter, values, np.zeros(len(points)), known)
            found.append(process)
        return found, expected


def log_probability(processes: Iterable[GaussianProcess], features: Array) -> Array:
    """Logarithm of the probability that all constraints are kept at each row of ``features``."""
    found = np.zeros(len(features))
    for process in processes:
        mean, variance = process.predict(features)
        found += log_ndtr(mean / np.sqrt(variance))
    return found
