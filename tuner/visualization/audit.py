"""What early stopping cost a search, estimated from the trials that its audit let run to their end."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from operator import mul

import numpy as np
from numpy.typing import NDArray

from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.spec.objective import have_weights

Array = NDArray[np.float64]

LEAST_AUDITED = 5
"""With fewer audited trials, what stopping cost is not estimated."""

_DRAWS = 400
"""Bootstrap draws."""

_NEAREST = 5
"""The complete trials that stood nearest to a stopped one, at its rung: they tell how sure its end is."""

_RIDGE = 1.0
"""The prior belief in a slope of 1 and an intercept of 0, in trials."""


@dataclass(frozen=True)
class Interval:
    """An estimate, and between which values 90 % of its bootstrap draws are."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Audit:
    """What the audited trials of a search tell."""

    to_stop: int
    """Trials that were to be stopped, the audited ones included."""
    audited: int
    better: int
    """Audited trials whose last value is better than that of all trials that were not to be stopped."""
    missed: Interval | None = None
    """By how much the best stopped trial would have beaten the best complete one, in units of the objective; None if
    too few were audited, or outcome constraints rank trials too."""
    rung: int = 0
    """The one at which most trials were to be stopped."""
    correlation: Interval | None = None
    """Of the ranks at ``rung`` and the last ones, over all trials of the search; None as `missed`, or if all values at
    either are equal."""


def audit(results: ResultSet) -> Audit | None:
    """None if nothing was audited, or several objectives without weights are compared."""
    share, objectives = results.section("scheduler").get("audit"), results.objectives
    weights = [objective.weight or 0 for objective in objectives] if have_weights(objectives) else [1.0]
    if not share or len(weights) < len(objectives):
        return None
    trials = [t for t in results.trials if t.status == "completed" or (t.status == "stopped" and t.rung is not None)]
    rungs = sorted({trial.rung for trial in trials if trial.rung is not None})
    rows = [(trial, row) for trial in trials if (row := _values(results, trial, rungs, weights)) is not None]
    if not rungs or not any(trial.rung is None for trial, _ in rows):
        return None
    values = np.array([row for _, row in rows])
    complete = np.array([trial.status == "completed" for trial, _ in rows])
    to_stop = np.array([trial.rung is not None for trial, _ in rows])
    audited = complete & to_stop
    better = int((values[audited, -1] > values[~to_stop, -1].max()).sum())
    counts = int(to_stop.sum()), int(audited.sum()), better
    if audited.sum() < LEAST_AUDITED or results.section("outcome_constraints"):
        return Audit(*counts)
    levels = np.array([rungs.index(trial.rung) if trial.rung is not None else -1 for trial, _ in rows])
    rung = Counter(trial.rung for trial, _ in rows if trial.rung is not None).most_common(1)[0][0]
    early = values[complete, rungs.index(rung)]
    weight = np.where(audited, to_stop.sum() / audited.sum(), 1.0)[complete]
    known = ~np.isnan(early)
    correlation = rank_correlation(early[known], values[complete, -1][known], weight[known])
    return Audit(*counts, missed(values, complete, levels), rung, correlation)


def _values(results: ResultSet, trial: Trial, rungs: list[int], weights: list[float]) -> list[float] | None:
    """A trial's values at each rung that it reached, and at its end, to be made large; None if one is not finite."""
    unit = results.section("scheduler")["time_attr"]
    reached = [(report.progress(unit), sum(map(mul, weights, results.point(report)))) for report in trial.reports]
    at_rungs = [next((value for progress, value in reached if progress >= rung), math.nan) for rung in rungs]
    complete = trial.status == "completed"
    if not reached or not all(math.isfinite(value) for _, value in reached):
        return None
    return [*at_rungs, reached[-1][1] if complete else math.nan]


def rank_correlation(early: Array, last: Array, weights: Array, seed: int = 0) -> Interval | None:
    """Spearman's correlation of ``early`` and ``last`` values, one of each a trial; None if either are all equal.

    Args:
        early: Values at a rung.
        last: Values at the end.
        weights: For how many trials of the search each one stands.
        seed: Of the bootstrap.
    """
    if np.ptp(early) == 0 or np.ptp(last) == 0:
        return None
    rng = np.random.default_rng(seed)
    draws = np.array([_spearman(early[rows], last[rows], weights[rows]) for rows in _resampled(len(early), rng)])
    low, high = np.nanquantile(draws, (0.05, 0.95))
    return Interval(_spearman(early, last, weights), float(low), float(high))


def missed(values: Array, complete: NDArray[np.bool_], levels: NDArray[np.int64], seed: int = 0) -> Interval:
    """By how much the best trial that was stopped would have beaten the best complete one; 0 if it would not.

    The values at the end are regressed on those at the rung where a trial was stopped. Given the latter, stopping says
    nothing about the former, so that complete trials of all kinds may be learnt from. The median of the complete trials
    that stood nearest is taken in place of the regression line for the trials of which it is surer.

    Args:
        values: One row a trial and one column a level, to be made large; the last column is the end. NaN: not reached.
        complete: Whether each trial came to the end.
        levels: Of each trial that is not complete: the column of the rung at which it was stopped.
        seed: Of the bootstrap.
    """
    rng = np.random.default_rng(seed)
    known = values[complete]
    best = float(known[:, -1].max())
    draws = np.zeros(_DRAWS)
    for level in np.unique(levels[~complete]).tolist():
        stopped = values[~complete & (levels == level), level]
        rows = known[~np.isnan(known[:, level])]
        for draw, chosen in enumerate(_resampled(len(rows), rng)):
            x, y = rows[chosen, level], rows[chosen, -1]
            gains = y - x
            middle, spread = x.mean(), x.std() or 1.0
            z = (x - middle) / spread
            slope = float(z @ (gains - gains.mean())) / (len(x) + _RIDGE)
            residuals = gains - gains.mean() - slope * z
            order = np.argsort(x)
            place = np.searchsorted(x[order], stopped)
            first = np.clip(place - _NEAREST // 2, 0, max(len(x) - _NEAREST, 0))
            near = order[np.clip(first[:, None] + np.arange(_NEAREST), 0, len(x) - 1)]
            line = stopped + gains.mean() + slope * (stopped - middle) / spread
            (off_line, about_line), (nearby, about_nearby) = _upper_half(residuals[near]), _upper_half(y[near])
            better = about_nearby < about_line
            expected, deviation = np.where(better, [nearby, about_nearby], [line + off_line, about_line])
            at_end = expected + deviation * rng.standard_normal(len(stopped))
            draws[draw] = max(draws[draw], float(at_end.max()) - best)
    low, high = np.quantile(draws, (0.05, 0.95))
    return Interval(float(draws.mean()), float(low), float(high))


def _upper_half(values: Array) -> tuple[Array, Array]:
    """Median and deviation of each row. Trials fall far below others, and only those above can beat the best one."""
    median = np.median(values, axis=1)
    above = np.maximum(values - median[:, None], 0)
    return median, np.sqrt(2 * (above**2).mean(axis=1))


def _resampled(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.integers(count, size=(_DRAWS, count))


def _spearman(a: Array, b: Array, weights: Array) -> float:
    if np.ptp(a) == 0 or np.ptp(b) == 0:  # by chance, in a bootstrap sample
        return math.nan
    ranks = _ranks(a, weights), _ranks(b, weights)
    p, q = (rank - np.average(rank, weights=weights) for rank in ranks)
    return float((weights * p) @ q / np.sqrt(((weights * p) @ p) * ((weights * q) @ q)))


def _ranks(values: Array, weights: Array) -> Array:
    """The mean rank that each value has in the search, where it stands for as many trials as its weight says."""
    _, place = np.unique(values, return_inverse=True)
    mass = np.bincount(place, weights)
    return np.asarray((np.cumsum(mass) - mass / 2)[place])
