"""What can only be found out about a search space by drawing from it, and by looking at the points that start it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from tuner.configuration import Configuration
from tuner.errors import Problem
from tuner.spec.constraints import unjudged
from tuner.spec.reader import Experiment
from tuner.spec.space import Space
from tuner.spec.space_model import MAX_EFFORT

SAMPLES = 500
"""Configurations drawn to judge the constraints."""


def space_problems(experiment: Experiment) -> Iterator[Problem]:
    """Constraints that cannot be judged or met, and points to evaluate that are not in the space.

    Raises what a user's ``sample_from`` raises.
    """
    space, points = experiment.spec.search_space, experiment.spec.search.points_to_evaluate
    unconstrained = replace(space, constraints=())
    failed = _failures(space) if space.constraints else []
    for index, message in failed:
        yield experiment.problem(("constraints",) if index is None else ("constraints", index), message)
    target = unconstrained if failed else space
    for i, point in enumerate(points):
        for path, message in target.complaints(point, partial=True):
            yield experiment.problem(("search", "points_to_evaluate", i, *path), message)


def allowed(space: Space, count: int) -> tuple[list[Configuration], int]:
    """Up to ``count`` configurations that the constraints allow, and how many were drawn for them.

    Draws no more than `MAX_EFFORT` allows; fewer are found then, or none.
    """
    found: list[Configuration] = []
    drawn = 0
    for configuration in _draws(space):
        drawn += 1
        if space.allows(configuration):
            found.append(configuration)
        if len(found) == count:
            break
    return found, drawn


def _draws(space: Space) -> Iterator[Configuration]:
    """Configurations of ``space`` without its constraints, as many as may be drawn and judged by these."""
    from numpy.random import default_rng

    rng, unconstrained = default_rng(0), replace(space, constraints=())
    for _ in range(max(1, MAX_EFFORT // space.effort)):
        yield unconstrained.sample(rng)


def _failures(space: Space) -> list[tuple[int | None, str]]:
    """Why a search cannot start: (index of the constraint, message); None where only all together cannot be met.

    A few samples tell what cannot be judged. Many more are drawn until one satisfies all constraints.
    """
    failed: list[tuple[int | None, str]] = list(unjudged(space.constraints, list(islice(_draws(space), SAMPLES))))
    if failed:
        return failed
    unmet: set[int | None] = set(range(len(space.constraints)))
    drawn = 0
    for configuration in _draws(space):
        if space.allows(configuration):
            return []
        drawn += 1
        unmet -= {i for i in unmet if i is not None and space.constraints[i].holds(configuration)}
    none = f"none of {drawn:,} configurations drawn at random satisfies"
    return [
        (i, f"{none} {repr(space.constraints[i].text) if i is not None else 'all constraints together'}: {_REMEDY}")
        for i in unmet or {None}
    ]


_REMEDY = "it is rarer than that or impossible, so loosen it, or narrow the domains to where it holds"
