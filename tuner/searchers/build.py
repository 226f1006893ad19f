"""The searcher of a search, with what every search has around it."""

from __future__ import annotations

from tuner.searchers.base import Searcher, SearchSpec
from tuner.searchers.checked import checked
from tuner.searchers.constrained import ConstrainedSearcher
from tuner.searchers.prior_draws import first_points
from tuner.spec.algorithm import is_built_in
from tuner.spec.problem import SearchProblem


def build_searcher(spec: SearchSpec, task: SearchProblem) -> Searcher:
    """The searcher for ``task``, which gives ``points_to_evaluate`` first and nothing that a constraint forbids."""
    inner = spec.build(task) if is_built_in(spec) else checked(spec, task)
    points = [task.space.complete(point) for point in spec.points_to_evaluate]
    for point in first_points(task).values() if spec.follows_priors else ():
        if point is not None and point not in points:
            points.append(point)
    return ConstrainedSearcher(inner, task, points) if points or task.space.constraints else inner
