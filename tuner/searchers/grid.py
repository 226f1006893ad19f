"""Grid search: every combination once."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Literal

from pydantic import ConfigDict

from tuner.searchers.base import PastTrial, Searcher, SearchSpec
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space
from tuner.spec.values import value_key


class Grid(SearchSpec):
    """Every combination of all values once, in file order, the last parameter fastest; then the search ends.

    Combinations that the constraints forbid are left out; a prior changes nothing, as all values get their turn.

    Example:
        >>> import tuner
        >>> tuner.searchers.Grid().kind
        'grid'
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "grid"}]})

    kind: Literal["grid"] = "grid"
    """The name of this search algorithm."""

    def build(self, task: SearchProblem) -> Searcher:
        return GridSearcher(task.space)

    @property
    def max_objectives(self) -> float:
        return math.inf

    @property
    def compares_ranks(self) -> bool:
        return True

    @property
    def models_earlier_runs(self) -> bool:
        return False

    @property
    def follows_priors(self) -> bool:
        return False

    def validate_space(self, space: Space) -> list[tuple[tuple[str, ...], str]]:
        remedy = (
            "grid search needs separate values: use choice, grid_search, a range with a quantum such as quniform, "
            "or another searcher, such as search.kind random"
        )
        return [
            (p.path, f"{p.domain} has no end of values; {remedy}") for p in space.parameters if p.domain.count is None
        ]

    def default_trials(self, space: Space) -> int:
        """The size of the grid."""
        return space.size if isinstance(space.size, int) else super().default_trials(space)


class GridSearcher(Searcher):
    """Walks through the grid, past what has run already."""

    def __init__(self, space: Space) -> None:
        self._walk = space.grid()
        self._known: set[Hashable] = set()
        """Configurations that were not suggested by it."""

    def suggest(self, trial_id: str) -> Configuration | None:
        return next((found for found in self._walk if value_key(found) not in self._known), None)

    def register(self, trial_id: str, configuration: Configuration) -> None:
        self._known.add(value_key(configuration))

    def learn(self, trial: PastTrial) -> None:
        """All of the grid is asked, whatever ran in another search."""
