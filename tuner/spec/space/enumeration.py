"""Goes through the configurations of a space one by one, and counts them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tuner.spec.configuration import Configuration
from tuner.spec.space.domains import Domain
from tuner.spec.space.parameter import Condition, Parameter, Path
from tuner.spec.values import value_key

MAX_STATES = 1000
"""States that counting follows: their number can double with each parameter that later conditions ask for."""

UNCOUNTED = math.inf
"""Stands for a number of configurations above `MAX_STATES` that nobody counts."""


class GridWalk(Iterator[Configuration]):
    """Goes through every configuration of a space; can be pickled between two of them.

    Args:
        build: The space's configuration in which each active free parameter has the value that a function gives it.
        allows: Whether a configuration satisfies the constraints of the space.
    """

    def __init__(
        self, build: Callable[[Callable[[Parameter], Any]], Configuration], allows: Callable[[Configuration], bool]
    ) -> None:
        self._build = build
        self._allows = allows
        self._trail: list[tuple[int, int]] | None = []
        """(index of the value, number of values) of each active free parameter, in order; None at the end."""

    def __next__(self) -> Configuration:
        while self._trail is not None:
            configuration = self._step(self._trail)
            if self._allows(configuration):
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

        configuration = self._build(choose)
        while trail and trail[-1][0] + 1 == trail[-1][1]:
            trail.pop()
        if trail:
            trail[-1] = (trail[-1][0] + 1, trail[-1][1])
        self._trail = trail or None
        return configuration


def product_size(parameters: tuple[Parameter, ...]) -> int | float:
    """How many configurations there are without constraints; infinite if a range is continuous.

    Counts without enumerating. Groups of parameters that no condition connects multiply. In a connected group only the
    states that the conditions decide are followed. `UNCOUNTED` if there are too many of these.
    """
    if any(parameter.domain.count is None for parameter in parameters):
        return math.inf
    return _product(_connected_size(group) for group in _connected(parameters))


def _product(factors: Iterable[int | float]) -> int | float:
    """An integer may be too large to be multiplied by the float `UNCOUNTED`."""
    product: int | float = 1
    for factor in factors:
        if factor == UNCOUNTED:
            return UNCOUNTED
        product *= factor
    return product


def _connected(parameters: tuple[Parameter, ...]) -> list[list[Parameter]]:
    """The parameters in groups, in order, such that no condition connects two groups."""
    group_of: dict[Path, list[Parameter]] = {}
    for parameter in parameters:
        joined = {id(group_of[c.path]): group_of[c.path] for c in parameter.when}
        merged = [member for group in joined.values() for member in group] + [parameter]
        group_of |= {member.path: merged for member in merged}
    order = {parameter.path: i for i, parameter in enumerate(parameters)}
    groups = {id(group): group for group in group_of.values()}.values()
    return [sorted(group, key=lambda parameter: order[parameter.path]) for group in groups]


def _connected_size(parameters: list[Parameter]) -> int | float:
    """`product_size` of parameters that conditions connect.

    A state is the set of later parameters that are absent. Suppose ``opt`` is sgd or adam, and ``momentum`` is 0.8 or
    0.9 only if ``opt`` is sgd. After ``opt`` one way (sgd) leads to the state {}, and one (adam) to {momentum}. Of the
    first, ``momentum`` makes two ways; the second stays one: 3 configurations.
    """
    asking: dict[Path, list[tuple[Path, Condition]]] = {}
    for parameter in parameters:
        for condition in parameter.when:
            asking.setdefault(condition.path, []).append((parameter.path, condition))
    # how many partial configurations lead to each state: the later parameters of which some condition failed
    states: dict[frozenset[Path], int] = {frozenset(): 1}
    for parameter in parameters:
        following: dict[frozenset[Path], int] = {}
        branches = _branches(parameter.domain, asking.get(parameter.path, []))
        absent = frozenset(path for path, _ in asking.get(parameter.path, []))
        for failed, ways in states.items():
            passed = failed - {parameter.path}
            outcomes = {absent: 1} if parameter.path in failed else branches
            for newly, multiplicity in outcomes.items():
                key = passed | newly
                following[key] = following.get(key, 0) + ways * multiplicity
        if len(following) > MAX_STATES:
            return UNCOUNTED
        states = following
    return sum(states.values())


def _branches(domain: Domain, asking: list[tuple[Path, Condition]]) -> Mapping[frozenset[Path], int]:
    """For each set of parameters whose conditions fail: how many values of ``domain`` make exactly these fail."""
    told_apart = {value_key(v): v for _, condition in asking for v in condition.values if domain.contains(v)}
    branches: dict[frozenset[Path], int] = {}
    for same in told_apart:
        failing = frozenset(path for path, condition in asking if same not in condition.identities)
        branches[failing] = branches.get(failing, 0) + 1
    rest = (domain.count or 0) - len(told_apart)
    if rest:
        failing = frozenset(path for path, _ in asking)
        branches[failing] = branches.get(failing, 0) + rest
    return branches
