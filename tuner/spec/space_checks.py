"""What can only be found out about a search space by drawing from it, and by looking at the points that start it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tuner.configuration import Configuration
from tuner.errors import Problem
from tuner.spec.constraints import Constraint, failures
from tuner.spec.reader import Experiment
from tuner.spec.space import Space

SAMPLES = (500, 10_000)
"""Configurations drawn to judge the constraints: the second number where the first shows something wrong."""


def space_problems(experiment: Experiment) -> Iterator[Problem]:
    """Constraints that cannot be judged or met, and points to evaluate that are not in the space.

    Raises what a user's ``sample_from`` raises.
    """
    space, points = experiment.spec.search_space, experiment.spec.search.points_to_evaluate
    unconstrained = replace(space, constraints=())
    failed = _failures(space.constraints, unconstrained) if space.constraints else []
    for index, message in failed:
        yield experiment.problem(("constraints",) if index is None else ("constraints", index), message)
    target = unconstrained if failed else space
    for i, point in enumerate(points):
        for path, message in target.complaints(point, partial=True):
            yield experiment.problem(("search", "points_to_evaluate", i, *path), message)


def _failures(constraints: tuple[Constraint, ...], unconstrained: Space) -> list[tuple[int | None, str]]:
    from numpy.random import default_rng

    rng = default_rng(0)
    samples: list[Configuration] = []
    failed: list[tuple[int | None, str]] = []
    for count in SAMPLES:
        samples += [unconstrained.sample(rng) for _ in range(count - len(samples))]
        failed = list(failures(constraints, samples))
        if not failed:
            break
    return failed
