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
        self, trials: Sequence[str], features: Array, parameter: NDArray[np.int64], refit: bool
    ) -> list[GaussianProcess]:
        """One of each constraint, with a margin of 0 at 0.

        Args:
            trials: Those to fit them to.
            features: One row of each trial.
            parameter: As of `GaussianProcess`.
            refit: Whether hyperparameters are found anew.
        """
        if not self._margins:
            return []
        found, noise = [], np.zeros(len(features))
        for number, margins in enumerate(np.array([self._margins[trial] for trial in trials]).T):
            scale = float(np.median(np.abs(margins))) or float(np.abs(margins).max()) or 1.0
            scaled = np.clip(margins / scale, -_CLIP, _CLIP)
            known = self._hyperparameters.get(number, Hyperparameters.initial(int(parameter.max()) + 1))
            if refit or number not in self._hyperparameters:
                known = self._hyperparameters[number] = fitted(features, parameter, scaled, noise, known)
            found.append(GaussianProcess(features, parameter, scaled, noise, known))
        return found


def log_probability(processes: Iterable[GaussianProcess], features: Array) -> Array:
    """Logarithm of the probability that all constraints are kept at each row of ``features``."""
    found = np.zeros(len(features))
    for process in processes:
        mean, variance = process.predict(features)
        found += log_ndtr(mean / np.sqrt(variance))
    return found
