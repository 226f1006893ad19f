"""Outcome constraints as a Gaussian process each: how probable it is that a configuration keeps them.

Gardner et al. 2014, "Bayesian Optimization with Inequality Constraints": the expected improvement over the best
feasible trial is multiplied by the probability that all constraints are kept.

A metric such as a latency is the same in all reports of a trial. One that changes in training, such as a recall, may
break its limit early and keep it at the end. Then the final margin of a stopped trial is extrapolated, as its value is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from tuner.searchers.gp.final_values import extrapolate
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
        """Of each trial with a report, one row a constraint and one column a level: by how much the trial keeps it,
        negative if it breaks it; NaN above the level that it has reached."""
        self._changing: set[int] = set()
        """The numbers of the constraints whose margin has changed in the course of a trial."""
        self._hyperparameters: dict[int, Hyperparameters] = {}
        """By the number of the constraint."""

    def record(self, trial_id: str, margins: tuple[float, ...], reached: int, levels: int) -> None:
        """Takes note of a trial's latest report, by which it has ``reached`` so many of the ``levels``."""
        latest = np.clip(margins, -_LARGEST, _LARGEST)[:, None]
        rows = self._margins.setdefault(trial_id, np.full((len(margins), levels), np.nan))
        before = rows[:, :reached]
        known = ~np.isnan(before)
        self._changing.update(np.flatnonzero((known & (before != latest)).any(axis=1)).tolist())
        rows[:, :reached] = np.where(known, before, latest)
        rows[:, reached - 1] = latest[:, 0]

    def kept_by(self, view: Mapping[str, bool]) -> NDArray[np.bool_]:
        """Which trials are expected to keep all constraints at their end; all of them if there are none.

        Args:
            view: The trials, and whether the regressions learn from each.
        """
        kept = np.ones(len(view), dtype=bool)
        for means, _ in self._expected(view):
            kept &= means >= 0
        return kept

    def _expected(self, view: Mapping[str, bool]) -> Iterator[tuple[Array, Array]]:
        """For each constraint mean and variance of the final margin of each trial, in units of the median distance."""
        if not self._margins:
            return
        rows = np.array([self._margins[trial] for trial in view])
        last = (~np.isnan(rows[:, 0])).sum(axis=1) - 1
        for number in range(rows.shape[1]):
            latest = rows[np.arange(len(rows)), number, last]
            scale = float(np.median(np.abs(latest))) or float(np.abs(latest).max()) or 1.0
            means, variances = np.clip(latest / scale, -_CLIP, _CLIP), np.zeros(len(rows))
            if number in self._changing:
                scaled = np.clip(rows[:, number] / scale, -_CLIP, _CLIP)
                means, variances = extrapolate(scaled, np.array(list(view.values())))
                means = np.clip(means, -_CLIP, _CLIP)
            means[(latest == 0) & (variances == 0)] = _AT_LIMIT
            yield means, variances

    def processes(
        self,
        view: Mapping[str, bool],
        rows: NDArray[np.int64],
        features: Array,
        waiting: Array,
        parameter: NDArray[np.int64],
        refit: bool,
    ) -> tuple[list[GaussianProcess], NDArray[np.bool_]]:
        """One of each constraint, with a margin of 0 at 0; and which trials without a report are expected to keep all.

        Args:
            view: As of `kept_by`.
            rows: The numbers of the trials of ``view`` to fit them to.
            features: One row of each of these.
            waiting: One row of each trial without a report, which counts with the margin that is expected of it.
            parameter: As of `GaussianProcess`.
            refit: Whether hyperparameters are found anew.
        """
        found, expected = list[GaussianProcess](), np.ones(len(waiting), dtype=bool)
        for number, (means, variances) in enumerate(self._expected(view)):
            values, noise = means[rows], variances[rows]
            known = self._hyperparameters.get(number, Hyperparameters.initial(int(parameter.max()) + 1))
            if refit or number not in self._hyperparameters:
                known = self._hyperparameters[number] = fitted(features, parameter, values, noise, known)
            process = GaussianProcess(features, parameter, values, noise, known)
            if len(waiting):
                there = process.predict(waiting)[0]
                expected &= there >= 0
                points, values = np.concatenate([features, waiting]), np.append(values, there)
                process = GaussianProcess(points, parameter, values, np.append(noise, np.zeros(len(there))), known)
            found.append(process)
        return found, expected


def log_probability(processes: Iterable[GaussianProcess], features: Array) -> Array:
    """Logarithm of the probability that all constraints are kept at each row of ``features``."""
    found = np.zeros(len(features))
    for process in processes:
        mean, variance = process.predict(features)
        found += log_ndtr(mean / np.sqrt(variance))
    return found
