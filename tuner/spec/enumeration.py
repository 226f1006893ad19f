"""Goes through the configurations of a space one by one, and counts them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tuner.configuration import Configuration
from tuner.spec.values import identity

if TYPE_CHECKING:
    from tuner.spec.space_model import Parameter, Path, Space

_OTHER = object()
"""Stands for all values that no condition tells apart, and for none."""


class GridWalk(Iterator[Configuration]):
    """Goes through every configuration that a space allows; can be pickled between two of them."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._trail: list[tuple[int, int]] | None = []
        """(index of the value, number of values) of each active free parameter, in order; None at the end."""

    def __next__(self) -> Configuration:
        while self._trail is not None:
            configuration = self._step(self._trail)
            if self._space.allows(configuration):
                return configuration
        raise StopIteration

    def _step(self, trail: list[tuple[int, int]]) -> Configuration:
        depth = 0

        def choose(parameter: Parameter) -> Any:
            nonlocal depth
            if depth == len(trail):
                if parameter.domain.count is None:
                    raise LookupError(f"{parameter.name}: {parameter.domain} has no separate values")
                trail.append((0, parameter.domain.count))
            depth += 1
            return parameter.domain.value(trail[depth - 1][0])

        configuration = self._space.build(choose)
        while trail and trail[-1][0] + 1 == trail[-1][1]:
            trail.pop()
        if trail:
            trail[-1] = (trail[-1][0] + 1, trail[-1][1])
        self._trail = trail or None
        return configuration


def product_size(parameters: tuple[Parameter, ...]) -> int | float:
    """How many configurations there are without constraints.

    Counts without enumerating: only the values that some condition tells apart are followed separately.
    """
    told_apart: dict[Path, dict[Any, Any]] = {}
    last_use: dict[Path, int] = {}
    for index, parameter in enumerate(parameters):
        for condition in parameter.when:
            told_apart.setdefault(condition.path, {}).update({identity(v): v for v in condition.values})
            last_use[condition.path] = index
    # how many partial configurations lead to each state, a state being the values that later conditions ask for
    states: dict[tuple[tuple[Path, Any], ...], tuple[dict[Path, Any], int | float]] = {(): ({}, 1)}
    for index, parameter in enumerate(parameters):
        count = math.inf if parameter.domain.count is None else parameter.domain.count
        following: dict[tuple[tuple[Path, Any], ...], tuple[dict[Path, Any], int | float]] = {}
        for chosen, ways in states.values():
            branches: list[tuple[Any, int | float]] = [(_OTHER, 1)]
            if parameter.active(chosen):
                distinct = [v for v in told_apart.get(parameter.path, {}).values() if parameter.domain.contains(v)]
                rest = count - len(distinct)
                branches = [(v, 1) for v in distinct] + ([(_OTHER, rest)] if rest else [])
            for value, multiplicity in branches:
                live = {path: v for path, v in chosen.items() if last_use[path] > index}
                if value is not _OTHER and last_use[parameter.path] > index:
                    live[parameter.path] = value
                key = tuple((path, identity(v)) for path, v in live.items())
                following[key] = (live, following.get(key, (live, 0))[1] + ways * multiplicity)
        states = following
    return sum(ways for _, ways in states.values())
