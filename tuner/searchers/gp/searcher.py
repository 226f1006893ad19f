"""Suggests by expected improvement under a Gaussian process over the final values of all trials."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import default_rng
from numpy.typing import NDArray
from scipy.special import log_ndtr
from scipy.stats.qmc import Sobol
from threadpoolctl import threadpool_limits

from tuner.searchers.base import PastTrial, Searcher
from tuner.searchers.gp.encoding import Encoding
from tuner.searchers.gp.final_values import extrapolate, levels_up_to
from tuner.searchers.gp.gaussian_process import GaussianProcess, Hyperparameters, fitted
from tuner.searchers.gp.limits import Limits, log_probability
from tuner.searchers.prior_draws import PriorDraws
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem

Array = NDArray[np.float64]

_REFIT = 1.1
"""Hyperparameters are found anew when there are so many times the trials with a report."""

_CLIP, _CLIP_EARLY = 3.0, 10.0
"""A final value is at most so many times as far below the median as the best one is above; and one before that."""

_DRAWS, _CENTRES, _NEAR = 400, 8, 24
"""Candidates: so many at random, and so many around each of the best trials."""
_ROUNDS, _CLIMBERS, _WIDTH, _SHRINK = 4, 6, 0.15, 0.4
"""Then so many rounds around the best candidates, of this width at first; it shrinks by the factor."""

_VIEW = 1000
"""At half as many again, the trials in view are thinned to about so many, so that a suggestion never costs more."""

_PRIOR_WEIGHT = 4
"""β in Hvarfner et al. 2022, as `bohb` has it."""
_LEAST_DENSITY = 1e-32

_DIGITS = 3
"""Decimal places to which coordinates in the unit cube count as equal."""

_APART = 0.02
"""How far a candidate must be from all trials without a report, in the unit cube, while nothing is feasible."""

_FAILED_NOISE = 0.1
"""Variance of the value of a trial that failed."""

_LARGEST = 1e30
"""A diverged loss becomes this, as values are squared."""


@dataclass(frozen=True)
class _Known:
    """The trials that a process is fitted to, one row of each array."""

    points: Array
    means: Array
    """Of the final values, standardised."""
    variances: Array
    feasible: NDArray[np.bool_]
    rows: NDArray[np.int64]
    """The numbers in the view of the first trials; the others failed."""


class GpSearcher(Searcher):
    """Knows each trial's point, and its values at the levels that it has reached."""

    def __init__(self, task: SearchProblem, initial: int, max_history: int, enumerates: bool) -> None:
        self._space = task.space
        self._sign = task.sign
        self._initial = initial
        self._max_history = max_history
        self._rng = default_rng(task.seed)
        self._encoding = Encoding(task.space)
        self._levels = None if task.max_t is None else levels_up_to(task.max_t)
        self._sobol = Sobol(max(len(self._space.free), 1), scramble=True, rng=task.seed)
        self._priors = PriorDraws(task, _PRIOR_WEIGHT)
        self._believes = any(parameter.prior is not None for parameter in self._space.free)
        self._left: dict[bytes, Array] | None = None
        """The points of a small space that were not asked yet."""
        if enumerates:
            grid = [np.array(self._space.to_unit(configuration)) for configuration in task.space.grid()]
            self._left = {point.tobytes(): point for point in grid}
        self._points: dict[str, Array] = {}
        self._asked: set[bytes] = set()
        """About the points of all trials of this search."""
        self._values: dict[str, Array] = {}
        """Of each trial with a report: its value at each level, to be made large; NaN above the one it has reached."""
        self._view: dict[str, bool] = {}
        """The trials at which a suggestion looks, and whether the regressions of final values learn from each."""
        self._limits = Limits()
        self._margins: dict[str, tuple[float, ...]] = {}
        """Those of the report that comes next."""
        self._waiting: set[str] = set()
        """Trials without a report."""
        self._failed: dict[str, None] = {}
        self._hyperparameters = Hyperparameters.initial(len(self._space.free))
        self._fitted_to = 0
        """How many trials had reported when they were found."""

    def suggest(self, trial_id: str) -> Configuration | None:
        if self._left == {}:
            return None
        suggested = None
        if len(self._values) >= self._initial:
            with threadpool_limits(1):  # the matrices are small, and the other cores may train trials
                suggested = self._modelled()
        if suggested is None:
            suggested = self._spread()
        self.register(trial_id, suggested)
        return suggested

    def _spread(self) -> Configuration:
        """The next point of the sequence, or of the priors, if that may be asked; the very first one is the middle."""
        place = self._space.from_unit(self._sobol.random(1)[0] if self._points else [0.5] * len(self._space.free))
        believed = self._priors.draw()
        if believed:
            place = self._space.build(lambda p: believed[p.path] if p.path in believed else p.domain.sample(self._rng))
        if self._left is not None and np.array(self._space.to_unit(place)).tobytes() not in self._left:
            return self._space.from_unit(self._rng.choice(list(self._left.values())))
        return place if self._space.allows(place) else self._space.sample(self._rng)

    def register(self, trial_id: str, configuration: Configuration) -> None:
        self._points[trial_id] = point = np.array(self._space.to_unit(configuration))
        self._waiting.add(trial_id)
        self._asked.add(_about(point))
        if self._left is not None:
            self._left.pop(point.tobytes(), None)

    def on_margins(self, trial_id: str, margins: tuple[float, ...]) -> None:
        if trial_id in self._points:
            if self._levels is None:
                self._limits.record(trial_id, margins, 1, 1)
            else:
                self._margins[trial_id] = margins

    def on_report(self, trial_id: str, step: int, value: float) -> None:
        if trial_id in self._points and self._levels is not None:
            self._priors.trained.on_report(trial_id, step)
            self._waiting.discard(trial_id)
            row = self._row(trial_id, len(self._levels))
            reached = max(sum(level <= step for level in self._levels), 1)
            row[:reached] = np.where(np.isnan(row[:reached]), self._quality(value), row[:reached])
            row[reached - 1] = self._quality(value)
            if margins := self._margins.pop(trial_id, None):
                self._limits.record(trial_id, margins, reached, len(self._levels))

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        if trial_id not in self._points:
            return
        self._priors.trained.end(trial_id, step)
        self._waiting.discard(trial_id)
        if values is None:
            self._values.pop(trial_id, None)
            self._view.pop(trial_id, None)
            self._failed[trial_id] = None
        elif self._levels is None:
            self._row(trial_id, 1)[0] = self._quality(values[0])
        else:
            self.on_report(trial_id, step, values[0])

    def _row(self, trial_id: str, levels: int) -> Array:
        """The values of a trial that has something new, and so is in view."""
        self._view.setdefault(trial_id, True)
        return self._values.setdefault(trial_id, np.full(levels, math.nan))

    def learn(self, trial: PastTrial) -> None:
        """The configuration may be asked again: the best trial is one of this run."""
        left = dict(self._left or {})
        super().learn(trial)
        self._asked.clear()
        if self._left is not None:
            self._left = left

    def _quality(self, value: float) -> float:
        """What is to be made large."""
        return self._sign * min(max(value, -_LARGEST), _LARGEST)

    def _modelled(self) -> Configuration | None:
        """The new configuration with the largest expected improvement that is found; None if none is allowed."""
        known = self._known()
        features = self._encoding.features(known.points)
        parameter = self._encoding.parameter
        refit = len(self._values) >= _REFIT * self._fitted_to
        if refit:
            self._hyperparameters = fitted(features, parameter, known.means, known.variances, self._hyperparameters)
            self._fitted_to = len(self._values)
        process = GaussianProcess(features, parameter, known.means, known.variances, self._hyperparameters)
        fit = process.predict(features)[0]
        incumbent = _incumbent(fit, known)
        waiting = [point for trial, point in self._points.items() if trial in self._waiting]
        there = self._encoding.features(np.array(waiting)) if waiting else features[:0]
        reported = features[: len(known.rows)]
        limits, expected = self._limits.processes(self._view, known.rows, reported, there, parameter, refit)
        if waiting:
            predicted = process.predict(there)[0]
            if limits and expected.any():
                lead = float(predicted[expected].max())
                incumbent = lead if incumbent is None else max(incumbent, lead)
            means = np.append(known.means, predicted)
            variances = np.append(known.variances, np.zeros(len(there)))
            features = np.concatenate([features, there])
            process = GaussianProcess(features, parameter, means, variances, self._hyperparameters)

        def gain(points: Array) -> Array:
            there = self._encoding.features(points)
            found = log_probability(limits, there)
            if incumbent is not None:
                mean, variance = process.predict(there)
                deviation = np.sqrt(variance)
                found += log_expected_improvement((mean - incumbent) / deviation) + np.log(deviation)
            return found + self._log_prior(points) if self._believes else found

        if self._left is not None:
            left = np.array(list(self._left.values()))
            return self._space.from_unit(left[int(gain(left).argmax())])
        centres = known.points[np.lexsort((-fit, ~known.feasible))[:_CENTRES]]
        points = self._candidates(gain, centres)
        if incumbent is None:  # nothing is feasible: probabilities alone would send all workers to one point
            points = points[_distances(self._encoding.features(points), there) > _APART]
        return next(filter(self._is_new, map(self._space.from_unit, points)), None)

    def _is_new(self, configuration: Configuration) -> bool:
        """Whether it may be asked, and was not."""
        asked = _about(np.array(self._space.to_unit(configuration))) in self._asked
        return not asked and self._space.allows(configuration)

    def _known(self) -> _Known:
        """The trials for the process: of many the half with the best expected values, and others at random."""
        if len(self._view) > 1.5 * _VIEW:
            self._thin()
        _, means, variances = self._expected()
        spread = float(means.std()) or 1.0
        means, variances = (means - means.mean()) / spread, variances / spread**2
        rows = np.arange(len(means))
        feasible = self._limits.kept_by(self._view)
        if len(rows) > self._max_history:
            best, rest = np.split(np.lexsort((-means, ~feasible)), [self._max_history // 2])
            rows = np.append(best, self._rng.choice(rest, self._max_history - len(best), replace=False))
        trials = list(self._view)
        failed = list(self._failed)[-self._max_history // 4 :]
        return _Known(
            points=np.array([self._points[trial] for trial in [*(trials[row] for row in rows), *failed]]),
            means=np.append(means[rows], np.full(len(failed), means.min())),
            variances=np.append(variances[rows], np.full(len(failed), _FAILED_NOISE)),
            feasible=np.append(feasible[rows], np.zeros(len(failed), dtype=bool)),
            rows=rows,
        )

    def _expected(self) -> tuple[Array, Array, Array]:
        """Of the trials in view the values, and mean and variance of the final one."""
        values = np.array([self._values[trial] for trial in self._view])
        means, variances = extrapolate(_scaled(values), np.array(list(self._view.values())))
        return values, _clipped(means, _CLIP), variances

    def _thin(self) -> None:
        """Keeps in view the trials that got furthest, as many others at random, and the best ones.

        How far a trial got was decided by values before, so regressions may learn from those that got furthest. From
        those that were chosen by their final values they may not.
        """
        values, means, _ = self._expected()
        trials, reached = list(self._view), (~np.isnan(values)).sum(axis=1)
        learners = np.array(list(self._view.values()))
        order = np.lexsort((self._rng.random(len(trials)), -reached * learners))
        furthest, rest = order[: _VIEW // 2], self._rng.permutation(order[_VIEW // 2 : learners.sum()])
        best = np.lexsort((-means, ~self._limits.kept_by(self._view)))[: self._max_history // 2]
        view = {trials[row]: False for row in best}
        view.update({trials[row]: True for row in (*furthest, *rest[: _VIEW // 2])})
        self._view = view

    def _candidates(self, gain: Callable[[Array], Array], centres: Array) -> Array:
        """Points with a large gain, the largest first: at random, near the best trials, then near the best of these."""
        drawn = [self._rng.random((_DRAWS, len(self._space.free)))]
        drawn += [self._near(centre, 10 ** self._rng.uniform(-2.5, -0.5, (_NEAR, 1))) for centre in centres]
        points = self._encoding.snapped(np.concatenate(drawn))
        gains = gain(points)
        for round_ in range(_ROUNDS):
            best = points[np.argsort(-gains)[:_CLIMBERS]]
            near = [self._near(point, _WIDTH * _SHRINK**round_) for point in best]
            points = np.concatenate([best, self._encoding.snapped(np.concatenate(near))])
            gains = gain(points)
        return points[np.argsort(-gains)]

    def _log_prior(self, points: Array) -> Array:
        """Logarithm of the priors' density to the power β/n, at the parameters that are active."""
        found = np.zeros(len(points))
        for j, parameter in enumerate(self._space.free):
            if parameter.prior is not None:
                for k, u in enumerate(points[:, j].tolist()):
                    if not math.isnan(u):
                        density = parameter.prior.density(parameter.domain, parameter.domain.from_unit(u))
                        found[k] += math.log(max(density, _LEAST_DENSITY))
        return found * _PRIOR_WEIGHT / max(self._priors.trained.count, 1)

    def _near(self, centre: Array, width: Array | float) -> Array:
        """Points around ``centre``, each with some of the coordinates moved."""
        shape = _NEAR, len(centre)
        moves = self._rng.random(shape) < max(0.3, 2 / len(centre))
        middle = np.where(np.isnan(centre), self._rng.random(shape), centre)
        return np.asarray(np.clip(middle + width * moves * self._rng.standard_normal(shape), 0, 1))


def _distances(points: Array, others: Array) -> Array:
    """Of each of ``points`` to the nearest of ``others``; infinite if there are none."""
    return np.asarray(np.linalg.norm(points[:, None] - others, axis=2).min(axis=1, initial=math.inf))


def _about(point: Array) -> bytes:
    """The same for two points that differ by less than a training can tell."""
    return point.round(_DIGITS).tobytes()


def _incumbent(fit: Array, known: _Known) -> float | None:
    """The best expected value of a feasible trial, be it complete, stopped or running; None if there is none."""
    lead = fit[known.feasible]
    return float(lead.max()) if len(lead) else None


def _scaled(values: Array) -> Array:
    """Values of which the median trial's last one is 0, and the best one's is 1."""
    last = values[np.arange(len(values)), (~np.isnan(values)).sum(axis=1) - 1]
    median = float(np.median(last))
    return _clipped((values - median) / (float(last.max()) - median or float(last.std()) or 1.0), _CLIP_EARLY)


def _clipped(values: Array, times: float) -> Array:
    """No value is more than so many times as far below the median as the best one is above it, if it is."""
    known = values[~np.isnan(values)]
    median, best = float(np.median(known)), float(known.max())
    return np.maximum(values, median - times * (best - median)) if best > median else values


def log_expected_improvement(z: Array) -> Array:
    """Logarithm of φ(z) + z Φ(z), the expected improvement in units of the deviation; exact far below 0 too."""
    density = -0.5 * z * z - 0.5 * math.log(2 * math.pi)
    found = density - 2 * np.log(np.maximum(-z, 1.0))  # its limit far below 0
    near = z > -6
    found[near] = np.log(np.exp(density[near]) + z[near] * np.exp(log_ndtr(z[near])))
    return np.asarray(found)
