"""Random search (Bergstra and Bengio 2012): each parameter is drawn from its own domain, whatever the results are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict

from tuner.configuration import Configuration
from tuner.searchers.base import Searcher, SearchSpec, SearchTask
from tuner.spec.space import Condition, Constant, GridSearch, Parameter, Path, Space, at

if TYPE_CHECKING:
    from numpy.random import Generator


class Random(SearchSpec):
    """Independent draws. Parameters under ``grid_search`` go through all their combinations in turn instead.

    Where Ray Tune repeats the whole grid ``num_samples`` times, ``budget.trials`` is the total number of trials.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "random"}]})

    kind: Literal["random"] = "random"

    def build(self, task: SearchTask) -> Searcher:
        from numpy.random import PCG64, Generator

        return RandomSearcher(task.space, Generator(PCG64(task.seed)))

    def default_trials(self, space: Space) -> int:
        """Every combination of the ``grid_search`` parameters once, where there are any."""
        combinations = _grid_part(space).size
        if isinstance(combinations, int) and any(isinstance(p.domain, GridSearch) for p in space.parameters):
            return combinations
        return super().default_trials(space)


class RandomSearcher(Searcher):
    """Draws from ``rng``, and walks through the ``grid_search`` parameters again and again."""

    def __init__(self, space: Space, rng: Generator) -> None:
        self._space = space
        self._rng = rng
        self._grid = _grid_part(space)
        self._walk = self._grid.grid()

    def suggest(self, trial_id: str) -> Configuration:
        combination = next(self._walk, None)
        if combination is None:
            self._walk = self._grid.grid()
            combination = next(self._walk)

        def choose(parameter: Parameter) -> Any:
            if isinstance(parameter.domain, GridSearch):
                return at(combination, parameter.path)
            return parameter.domain.sample(self._rng)

        return self._space.build(choose)


def _grid_part(space: Space) -> Space:
    """The ``grid_search`` parameters and constants of ``space`` as a space of their own.

    A condition on a parameter that is drawn at random is left out: the grid then holds the values for the case that
    it holds, and the others for nothing.
    """
    kept: dict[Path, Parameter] = {}
    for parameter in space.parameters:
        if isinstance(parameter.domain, (GridSearch, Constant)):
            when: tuple[Condition, ...] = tuple(c for c in parameter.when if c.path in kept)
            kept[parameter.path] = Parameter(parameter.path, parameter.domain, when)
    return Space(tuple(kept.values()))
