"""The search space: its parameters in order, each with its domain and the conditions under which it exists."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.configuration import Configuration
from tuner.spec.domains import Computed, Constant, Domain
from tuner.spec.space_writer import python_only, to_yaml
from tuner.spec.values import contains, identity, show

if TYPE_CHECKING:
    from numpy.random import Generator

Path = tuple[str, ...]
"""Names from the root to a parameter; the elements of a list are named ``"0"``, ``"1"``, …"""

_ABSENT = object()


@dataclass(frozen=True)
class Condition:
    """``when: {optimizer: [sgd, adam]}``: holds while the parameter at ``path`` is active and has one of ``values``."""

    path: Path
    values: tuple[Any, ...]

    def holds(self, chosen: Mapping[Path, Any]) -> bool:
        """Whether it holds given the values of the active parameters so far."""
        return self.path in chosen and contains(self.values, chosen[self.path])

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} is {' or '.join(show(value) for value in self.values)}"


@dataclass(frozen=True)
class Parameter:
    """One leaf of the configuration; ``when`` holds the conditions of the groups around it too, outermost first."""

    path: Path
    domain: Domain
    when: tuple[Condition, ...] = ()

    @property
    def name(self) -> str:
        """The dotted path."""
        return ".".join(self.path)

    @property
    def free(self) -> bool:
        """Whether a searcher chooses its value."""
        return not isinstance(self.domain, (Constant, Computed))

    def condition(self) -> str:
        """Its conditions in words, with a space in front: `` when optimizer is sgd``; empty where it has none."""
        return f" when {' and '.join(map(str, self.when))}" if self.when else ""

    def active(self, chosen: Mapping[Path, Any]) -> bool:
        """Whether it exists, given the values of the earlier active parameters."""
        return all(condition.holds(chosen) for condition in self.when)


@dataclass(frozen=True)
class Space:
    """Parameters in file order; a condition names only parameters before its own."""

    parameters: tuple[Parameter, ...]
    sequences: tuple[tuple[Path, type[list[Any]] | type[tuple[Any, ...]]], ...] = ()
    """Paths of lists and tuples that hold domains (from Python only), inner ones first, and which of the two."""

    @property
    def conditional(self) -> bool:
        """Whether some parameter can be inactive."""
        return any(parameter.when for parameter in self.parameters)

    def build(self, choose: Callable[[Parameter], Any]) -> Configuration:
        """The configuration in which each active free parameter has the value that ``choose`` gives it.

        The one traversal of the space: ``choose`` is called in file order, and for active parameters only.
        """
        chosen: dict[Path, Any] = {}
        configuration: Configuration = {}
        computed = []
        for parameter in self.parameters:
            if not parameter.active(chosen):
                continue
            if isinstance(parameter.domain, Computed):
                computed.append(parameter)
                _put(configuration, parameter.path, parameter.domain.function)
                continue
            domain = parameter.domain
            value = domain.constant if isinstance(domain, Constant) else choose(parameter)
            chosen[parameter.path] = value
            _put(configuration, parameter.path, _fresh(value))
        for path, _ in self.sequences:
            _put(configuration, path, list(_at(configuration, path).values()))
        if computed:
            _compute(configuration, computed)
        for path, sequence in self.sequences:
            if sequence is tuple:
                _put(configuration, path, tuple(_at(configuration, path)))
        return configuration

    def sample(self, rng: Generator) -> Configuration:
        """A configuration drawn at random, each parameter from its own domain."""
        return self.build(lambda parameter: parameter.domain.sample(rng))

    def grid(self) -> GridWalk:
        """Every configuration once: the product of all domains, the last parameter fastest.

        Raises LookupError where a parameter has no separate values.
        """
        return GridWalk(self)

    @property
    def size(self) -> int | float:
        """How many different configurations `grid` gives; ``math.inf`` where a range is continuous."""
        return _size(self.parameters)

    def contains(self, configuration: Mapping[str, Any]) -> bool:
        """Whether ``configuration`` is a point of this space."""
        return not self.complaints(configuration)

    def complaints(self, configuration: Mapping[str, Any]) -> list[tuple[Path, str]]:
        """Everything that keeps ``configuration`` out of this space: (path, what is wrong)."""
        found: list[tuple[Path, str]] = []
        chosen: dict[Path, Any] = {}
        for parameter in self.parameters:
            value = _at(configuration, parameter.path)
            if value is not _ABSENT:
                chosen[parameter.path] = value
            failed = [str(condition) for condition in parameter.when if not condition.holds(chosen)]
            if failed:
                chosen.pop(parameter.path, None)
            if failed and value is not _ABSENT:
                found.append((parameter.path, f"must be absent: it exists only when {' and '.join(failed)}"))
            elif not failed and value is _ABSENT:
                found.append((parameter.path, f"is missing: it comes from {parameter.domain}"))
            elif not failed and not parameter.domain.contains(value):
                found.append((parameter.path, f"{show(value)} is outside {parameter.domain}"))
        known = {parameter.path for parameter in self.parameters}
        groups = {path[:depth] for path in known for depth in range(len(path))}
        found += [(path, "is no parameter of this space") for path in _strangers(configuration, (), known, groups)]
        return found

    def to_yaml(self) -> dict[str, Any]:
        """The plain mapping that `tuner.spec.space_reader.read_space` reads back as an equal space.

        Raises ValueError where `python_only` finds something.
        """
        if self.python_only():
            raise ValueError("; ".join(f"{'.'.join(path)} {why}" for path, why in self.python_only()))
        return to_yaml(self, (), self.parameters, 0)

    def python_only(self) -> list[tuple[Path, str]]:
        """What YAML cannot express, so that this space must be loaded from Python again: (path, why)."""
        return python_only(self)


class GridWalk(Iterator[Configuration]):
    """Goes through every configuration of a space; can be pickled between two of them."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._trail: list[tuple[int, int]] | None = []
        """(index of the value, number of values) of each active free parameter, in order; None at the end."""

    def __next__(self) -> Configuration:
        if self._trail is None:
            raise StopIteration
        trail = self._trail
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


def at(configuration: Mapping[str, Any], path: Path) -> Any:
    """The value at ``path``. Raises KeyError where there is none."""
    value = _at(configuration, path)
    if value is _ABSENT:
        raise KeyError(".".join(path))
    return value


def _at(value: Any, path: Path) -> Any:
    for key in path:
        if isinstance(value, (list, tuple)) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, Mapping) and key in value:
            value = value[key]
        else:
            return _ABSENT
    return value


def _put(configuration: Configuration, path: Path, value: Any) -> None:
    container: Any = configuration
    for key in path[:-1]:
        container = container[int(key)] if isinstance(container, list) else container.setdefault(key, {})
    container[int(path[-1]) if isinstance(container, list) else path[-1]] = value


def _fresh(value: Any) -> Any:
    """A copy of nested lists and mappings, so that no trial can change the space; other objects stay the same."""
    if isinstance(value, dict):
        return {key: _fresh(item) for key, item in value.items()}
    return [_fresh(item) for item in value] if isinstance(value, list) else value


def _compute(configuration: Configuration, computed: list[Parameter]) -> None:
    """Replaces each ``sample_from`` by its value, with Ray's own guard against reading one that has none yet.

    Raises Ray's RecursiveDependencyError when some of them wait for each other.
    """
    from ray.tune.search.variant_generator import RecursiveDependencyError, _UnresolvedAccessGuard

    guard: Callable[[Configuration], Configuration] = _UnresolvedAccessGuard

    while computed:
        waiting: list[Parameter] = []
        for parameter in computed:
            assert isinstance(parameter.domain, Computed)
            try:
                value = parameter.domain.function.sample(guard(configuration))
            except RecursiveDependencyError:
                if len(waiting) + 1 == len(computed):
                    raise
                waiting.append(parameter)
            else:
                _put(configuration, parameter.path, value)
        computed = waiting


def _size(parameters: tuple[Parameter, ...]) -> int | float:
    """Counts without enumerating: only the values that some condition tells apart are followed separately."""
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
            branches: list[tuple[Any, int | float]] = [(_ABSENT, 1)]
            if parameter.active(chosen):
                distinct = [v for v in told_apart.get(parameter.path, {}).values() if parameter.domain.contains(v)]
                rest = count - len(distinct)
                branches = [(v, 1) for v in distinct] + ([(_ABSENT, rest)] if rest else [])
            for value, multiplicity in branches:
                live = {path: v for path, v in chosen.items() if last_use[path] > index}
                if value is not _ABSENT and last_use[parameter.path] > index:
                    live[parameter.path] = value
                key = tuple((path, identity(v)) for path, v in live.items())
                following[key] = (live, following.get(key, (live, 0))[1] + ways * multiplicity)
        states = following
    return sum(ways for _, ways in states.values())


def _strangers(value: Any, path: Path, known: set[Path], groups: set[Path]) -> Iterator[Path]:
    if path in known:
        return
    if path not in groups or not isinstance(value, (Mapping, list, tuple)):
        yield path
        return
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, item in items:
        yield from _strangers(item, (*path, str(key)), known, groups)
