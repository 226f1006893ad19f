"""The search algorithm that suits the space, the objectives and the scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

from pydantic import ConfigDict

from tuner.searchers.base import Searcher, SearchSpec
from tuner.searchers.bohb.searcher import Bohb
from tuner.searchers.gp.spec import Gp
from tuner.searchers.optuna.spec import Optuna
from tuner.searchers.random import Random
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space


class Auto(SearchSpec):
    """The first of these that can do what the experiment asks for.

    1. ``gp``, which learns from every report.
    2. ``optuna`` with ``tpe``, for several objectives without weights.
    3. ``bohb``, for the scheduler of that name.
    4. ``random``, for parameters under ``grid_search`` or ``sample_from``, for schedulers that change the
       configurations themselves, and where the space has nothing to choose.

    ``validate`` names the choice and its reason. The run folder records the choice, so that `resume` and `extend`
    keep it.

    Example:
        >>> from tuner.searchers import Auto
        >>> from tuner.testing import space_of
        >>> search, reason = Auto(seed=0).chosen(space_of({"lr": {"loguniform": [1e-4, 0.1]}}), objectives=1)
        >>> search.kind, reason
        ('gp', 'it learns from every report')
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "auto"}, {"kind": "auto", "seed": 0}]})

    kind: Literal["auto"] = "auto"
    """The name of this search algorithm."""

    def build(self, task: SearchProblem) -> Searcher:
        return self.chosen(task.space, len(task.modes))[0].build(task)

    def chosen(
        self,
        space: Space,
        objectives: int,
        incompatibility: Callable[[SearchSpec], str | None] = lambda search: None,
    ) -> tuple[SearchSpec, str]:
        """The search algorithm, with the options of this one, and the reason for it.

        Args:
            space: The search space.
            objectives: How many objectives it must search for at once.
            incompatibility: Why a search does not suit the rest of the experiment; None if it does.

        Returns:
            The specification, and a clause that says why. If none can do it, ``gp``: its errors name the reason.
        """
        given = {name: getattr(self, name) for name in self.model_fields_set - {"kind"}}
        order: list[SearchSpec] = [kind(**given) for kind in (Gp, Optuna, Bohb, Random)]
        gp = order[0]
        problem = partial(_problem, space=space, objectives=objectives, incompatibility=incompatibility)
        reason = problem(gp) or "it learns from every report"
        if not space.free:
            order, reason = order[::-1], "the search space has nothing to choose"
        return next((one for one in order if problem(one) is None), gp), reason

    @property
    def compares_ranks(self) -> bool:
        return True

    @property
    def max_objectives(self) -> float:
        return math.inf

    def modelled(self, task: SearchProblem, slots: int) -> float | None:
        return self.chosen(task.space, len(task.modes))[0].modelled(task, slots)


def _problem(
    search: SearchSpec, space: Space, objectives: int, incompatibility: Callable[[SearchSpec], str | None]
) -> str | None:
    """Why ``search`` cannot do what is asked for, without the remedy."""
    if objectives > search.max_objectives:
        return f"{search.kind} searches for one objective at once, and there are {objectives}"
    if search.from_runs and not search.models_earlier_runs:
        return f"{search.kind} learns nothing from earlier runs"
    wrong = [f"{'.'.join(path)}: {message}" for path, message in search.validate_space(space)]
    found = next(iter(wrong), None) or incompatibility(search)
    return None if found is None else found.rpartition(": ")[0] or found
