"""Random search (Bergstra and Bengio 2012): each parameter is drawn from its own domain, or from its prior."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict

from tuner.searchers.base import Searcher, SearchSpec
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Condition, Constant, GridSearch, Parameter, Path, Space, at

if TYPE_CHECKING:
    from numpy.random import Generator
    from scipy.stats.qmc import Sobol

_PATIENCE = 100
"""Draws that break a constraint before the next combination of the ``grid_search`` parameters gets its turn."""

_ETA = 3
"""η: a draw is a success when it ends among the best 1/η."""


class Random(SearchSpec):
    """Independent random draws. Parameters under ``grid_search`` go through all combinations in turn.

    ``budget.trials`` is the total number of trials; Ray Tune repeats the whole grid ``num_samples`` times instead. If
    parameters have priors, a share of the draws comes from these (see `PriorShare`).

    Example:
        >>> import tuner
        >>> tuner.searchers.Random(sequence="sobol", seed=0).sequence
        'sobol'
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "random"}, {"kind": "random", "sequence": "sobol"}]}
    )

    kind: Literal["random"] = "random"
    """The name of this search algorithm."""
    sequence: Literal["random", "sobol"] = "random"
    """``random``: independent draws. ``sobol``: a Sobol sequence, scrambled by ``seed`` (Owen 1998), with a dimension
    for each parameter: it covers the space more evenly, best with few parameters and a power of 2 of trials."""

    def build(self, task: SearchProblem) -> Searcher:
        from numpy.random import PCG64, Generator

        rng = Generator(PCG64(task.seed))
        points = SobolPoints(task.space, task.seed) if self.sequence == "sobol" else RandomPoints(rng)
        return RandomSearcher(task, rng, points)

    @property
    def max_objectives(self) -> float:
        return math.inf

    @property
    def compares_ranks(self) -> bool:
        return True

    @property
    def models_earlier_runs(self) -> bool:
        return False

    def default_trials(self, space: Space) -> int:
        """Every combination of the ``grid_search`` parameters once, where there are any."""
        combinations = _grid_part(space).size
        if isinstance(combinations, int) and any(isinstance(p.domain, GridSearch) for p in space.parameters):
            return combinations
        return super().default_trials(space)


class RandomPoints:
    """Independent points in the unit cube."""

    def __init__(self, rng: Generator) -> None:
        self._rng = rng

    def __call__(self) -> Callable[[Parameter], float]:
        """The next point: its coordinate for each parameter."""
        return lambda parameter: self._rng.random()


class SobolPoints:
    """The points of a scrambled Sobol sequence, one dimension for each free parameter."""

    def __init__(self, space: Space, seed: int) -> None:
        from scipy.stats.qmc import Sobol

        drawn = [p.path for p in space.parameters if p.free and not isinstance(p.domain, GridSearch)]
        self._dimension = {path: i for i, path in enumerate(drawn)}
        self._sobol: Sobol = Sobol(max(len(drawn), 1), scramble=True, rng=seed)

    def __call__(self) -> Callable[[Parameter], float]:
        """The next point: its coordinate for each parameter."""
        (point,) = self._sobol.random(1)
        return lambda parameter: float(point[self._dimension[parameter.path]])


class RandomSearcher(Searcher):
    """Draws from the domains or the priors, and walks through the ``grid_search`` parameters again and again."""

    def __init__(self, task: SearchProblem, rng: Generator, points: RandomPoints | SobolPoints) -> None:
        self._space = task.space
        self._rng = rng
        self._points = points
        self._grid = _grid_part(task.space)
        self._walk = self._grid.grid()
        believed = any(parameter.prior for parameter in task.space.parameters)
        self._share = PriorShare(task) if believed else None
        self._pending: dict[str, Draw] = {}
        """Trials that have not ended, by id, where there are priors."""

    def suggest(self, trial_id: str) -> Configuration:
        from_prior = self._share is not None and self._rng.random() < self._share.value
        if self._share is not None:
            self._pending[trial_id] = Draw(from_prior)
        draws = self._draws(from_prior)
        return self._space.first_allowed(lambda: next(draws))

    def on_pause(self, trial_id: str, step: int, values: tuple[float, ...]) -> None:
        if self._share is not None and trial_id in self._pending:
            self._share.judge(self._pending[trial_id], step, values)

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        """A trial that this searcher did not suggest is passed over."""
        if self._share is not None and trial_id in self._pending:
            self._share.judge(self._pending.pop(trial_id), step, values)

    def _draws(self, from_prior: bool) -> Iterator[Configuration]:
        """Endless draws; a combination of the ``grid_search`` parameters stays until it has had `_PATIENCE`."""
        while True:
            combination = next(self._walk, None)
            if combination is None:
                self._walk = self._grid.grid()
                combination = next(self._walk)
            for _ in range(_PATIENCE):
                yield self._draw(combination, from_prior)

    def _draw(self, combination: Configuration, from_prior: bool) -> Configuration:
        coordinate = self._points()

        def choose(parameter: Parameter) -> Any:
            if isinstance(parameter.domain, GridSearch):
                return at(combination, parameter.path)
            if parameter.prior is not None and from_prior:
                return parameter.prior.from_unit(parameter.domain, coordinate(parameter))
            return parameter.domain.from_unit(coordinate(parameter))

        return self._space.build(choose)


@dataclass
class Draw:
    """One suggested configuration."""

    from_prior: bool
    judged: bool = False
    score: tuple[float, float] | None = None
    """(step, value) when it was judged last; None if it failed."""
    success: bool = False


class PriorShare:
    """The share of draws that come from the priors: a half at first, then what its results earn.

    PriorBand (Mallik et al. 2023, section 5) samples equally from the prior and uniformly at its first rung. Then the
    best 1/η of its observations (η = 3) decide the trust in the prior. This is the same rule: a draw is a success if it
    ends or pauses among the best 1/η of all earlier ones. The prior's share is s_π / (s_π + s_u), where
    s = (successes + 1) / (draws + 2) is the success rate (Laplace 1774) of draws from the prior (π) and of uniform ones
    (u). A wrong prior soon gets almost no draws, and is tried again now and then. A right one soon gets most.
    """

    def __init__(self, task: SearchProblem) -> None:
        self._sign = task.sign
        self._compares_steps = task.max_t is not None
        self._scores: list[tuple[float, float]] = []
        """Of each draw that was judged and did not fail, sorted, the best last."""
        self._successes = {False: 0, True: 0}
        self._draws = {False: 0, True: 0}

    @property
    def value(self) -> float:
        """Of the next draws, in (0, 1)."""
        rates = {arm: (self._successes[arm] + 1) / (self._draws[arm] + 2) for arm in (False, True)}
        return rates[True] / (rates[True] + rates[False])

    def judge(self, draw: Draw, step: int, values: tuple[float, ...] | None) -> None:
        """A draw ended or paused; one that paused before is judged anew, in place of its judgement then.

        A scheduler that stops or pauses trials early keeps the good ones, so a later step is the better one.
        """
        arm = draw.from_prior
        self._draws[arm] += not draw.judged
        self._successes[arm] -= draw.success
        if draw.score is not None:
            del self._scores[bisect.bisect_left(self._scores, draw.score)]
        draw.judged, draw.score, draw.success = True, None, False
        if values is None:
            return
        draw.score = (step if self._compares_steps else 0.0, self._sign * values[0])
        rank = bisect.bisect(self._scores, draw.score)
        self._scores.insert(rank, draw.score)
        better = len(self._scores) - 1 - rank
        draw.success = better * _ETA < len(self._scores)
        self._successes[arm] += draw.success


def _grid_part(space: Space) -> Space:
    """The ``grid_search`` parameters and constants of ``space`` as a space of their own.

    A condition on a parameter that is drawn at random is left out: the grid then holds the values for the case that
    it holds, and the others for nothing. Constraints on these
    parameters alone are kept, unless such a condition was left out.
    """
    kept: dict[Path, Parameter] = {}
    for parameter in space.parameters:
        if isinstance(parameter.domain, (GridSearch, Constant)):
            when: tuple[Condition, ...] = tuple(c for c in parameter.when if c.path in kept)
            kept[parameter.path] = Parameter(parameter.path, parameter.domain, when)
    exact = {path for path, parameter in kept.items() if parameter in space.parameters}
    within = tuple(c for c in space.constraints if exact.issuperset(c.names))
    return Space(tuple(kept.values()), constraints=within)
