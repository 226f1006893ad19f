"""What can only be found out about a search space by drawing from it, and by looking at the points that start it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice

from tuner.errors import MOST_PROBLEMS, Problem
from tuner.experiment.reader import Experiment
from tuner.spec.configuration import Configuration
from tuner.spec.space import Space
from tuner.spec.space.constraints import unjudged
from tuner.spec.space.model import MAX_EFFORT

SAMPLES = 500
"""Configurations drawn to judge the constraints."""


@dataclass(frozen=True)
class Examined:
    """What drawing from a search space told."""

    problems: list[Problem]
    """Constraints that cannot be judged or met, and points to evaluate that are not in the space."""
    allowed: list[Configuration]
    """Configurations that the constraints allow; none where one cannot be judged or met."""
    drawn: int
    """How many were drawn for them."""


def examined(experiment: Experiment, count: int = 0) -> Examined:
    """Draws until ``count`` configurations are found that the constraints allow, and one where there are constraints.

    No more are drawn than `MAX_EFFORT` allows. Raises what a user's ``sample_from`` raises.
    """
    space, points = experiment.spec.search_space, experiment.spec.search.points_to_evaluate
    wanted = max(count, 1) if space.constraints else count
    failed, found, drawn = _drawn(space, wanted) if wanted else ([], [], 0)
    problems = [
        experiment.problem(("constraints",) if index is None else ("constraints", index), message)
        for index, message in failed
    ]
    target = replace(space, constraints=()) if failed else space
    for i, point in enumerate(points):
        for path, message in target.violations(point, partial=True):
            problems.append(experiment.problem(("search", "points_to_evaluate", i, *path), message))
        if len(problems) > MOST_PROBLEMS:  # more are not told
            break
    return Examined(problems, found, drawn)


_Failures = list[tuple[int | None, str]]
"""Why a search cannot start: (index of the constraint, message); None where only all together cannot be met."""


def _drawn(space: Space, count: int) -> tuple[_Failures, list[Configuration], int]:
    """Why none can be found; else up to ``count`` allowed configurations, and how many were drawn for them.

    A few samples tell what cannot be judged. Many more are drawn until one satisfies all constraints.
    """
    draws = _draws(space)
    first = list(islice(draws, SAMPLES if space.constraints else 0))
    failed: _Failures = list(unjudged(space.constraints, first))
    if failed:
        return failed, [], len(first)
    found: list[Configuration] = []
    unmet: set[int | None] = set(range(len(space.constraints)))
    drawn = 0
    for configuration in chain(first, draws):
        drawn += 1
        if space.allows(configuration):
            found.append(configuration)
        elif not found:
            unmet -= {i for i in unmet if i is not None and space.constraints[i].holds(configuration)}
        if len(found) == count:
            break
    if found:
        return [], found, drawn
    none = f"none of {drawn:,} configurations drawn at random satisfies"
    for i in unmet or {None}:
        what = repr(space.constraints[i].text) if i is not None else "all constraints together"
        failed.append((i, f"{none} {what}: {_REMEDY}"))
    return failed, [], drawn


def _draws(space: Space) -> Iterator[Configuration]:
    """Configurations of ``space`` without its constraints, as many as may be drawn and judged by these."""
    from numpy.random import default_rng

    rng, unconstrained = default_rng(0), replace(space, constraints=())
    for _ in range(max(1, MAX_EFFORT // space.effort)):
        yield unconstrained.sample(rng)


_REMEDY = "it is rarer than that or impossible, so loosen it, or narrow the domains to where it holds"
