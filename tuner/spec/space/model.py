"""The search space: its parameters in order, and the constraints between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tuner.errors import InputError
from tuner.spec.configuration import Configuration
from tuner.spec.space.constraints import Constraint
from tuner.spec.space.domains import Computed, Constant
from tuner.spec.space.enumeration import GridWalk, product_size
from tuner.spec.space.parameter import Parameter, Path
from tuner.spec.user_imports import no_exit
from tuner.spec.values import brief

if TYPE_CHECKING:
    from numpy.random import Generator

MAX_DRAWS = 1_000_000
"""Draws at most until one satisfies the constraints: a search may wait a while for it."""

MAX_PARAMETERS = 1000
"""Parameters of one space: what is done for each of them in each draw must come to an end."""

MAX_CONSTRAINTS = 100
"""Constraints of one space."""

MAX_COUNTED = 10_000
"""Combinations that `Space.size` counts one by one."""

MAX_EFFORT = 2_000_000
"""What a check of a space may take in all, in units of `Space.effort`."""

_ABSENT = object()


@dataclass(frozen=True)
class Space:
    """Parameters in file order; a condition names only parameters before its own."""

    parameters: tuple[Parameter, ...]
    sequences: tuple[tuple[Path, type[list[Any]] | type[tuple[Any, ...]]], ...] = ()
    """Paths of lists and tuples that hold domains (from Python only), inner ones first, and which of the two."""
    constraints: tuple[Constraint, ...] = ()
    """What every configuration satisfies besides."""

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

    def complete(self, point: Mapping[str, Any]) -> Configuration:
        """The configuration whose free parameters have the values that ``point`` gives them.

        ``point`` may leave out constants and computed values. Raises KeyError if it lacks a free parameter.
        """
        return self.build(lambda parameter: at(point, parameter.path))

    def project(self, configuration: Mapping[str, Any]) -> tuple[Configuration, str]:
        """The point of this space that has the values of ``configuration``, and why there is none.

        ``configuration`` may hold more than this space knows. It may lack a constant, which then had the value that the
        trainable gives it, and a parameter with a default.
        """
        for parameter in self.parameters:
            if isinstance(parameter.domain, Constant):
                value = _at(configuration, parameter.path)
                if value is not _ABSENT and not parameter.domain.contains(value):
                    return {}, f"{parameter.name}: {brief(value)} is outside {parameter.domain}"

        def value_of(parameter: Parameter) -> Any:
            value = _at(configuration, parameter.path)
            if value is _ABSENT and parameter.default:
                return parameter.default.value
            return at(configuration, parameter.path)

        try:
            found = self.build(value_of)
        except KeyError as error:
            return {}, f"{error.args[0]}: has no value there, and no default here"
        for path, problem in self.violations(found):
            return {}, f"{'.'.join(path)}: {problem}" if path else problem
        return found, ""

    @cached_property
    def free(self) -> tuple[Parameter, ...]:
        """The parameters that are chosen, in file order."""
        return tuple(parameter for parameter in self.parameters if parameter.free)

    def to_unit(self, configuration: Mapping[str, Any]) -> list[float]:
        """The point of ``configuration`` in the unit cube: one coordinate a free parameter, NaN if it is inactive."""
        values = [_at(configuration, parameter.path) for parameter in self.free]
        return [
            math.nan if value is _ABSENT else parameter.domain.to_unit(value)
            for parameter, value in zip(self.free, values, strict=True)
        ]

    def from_unit(self, point: Iterable[float]) -> Configuration:
        """The configuration at a point of the unit cube; a coordinate that is NaN and needed counts as the middle."""
        coordinates = dict(zip((parameter.path for parameter in self.free), map(float, point), strict=True))

        def choose(parameter: Parameter) -> Any:
            u = coordinates[parameter.path]
            return parameter.domain.from_unit(0.5 if math.isnan(u) else u)

        return self.build(choose)

    def allows(self, configuration: Configuration) -> bool:
        """Whether ``configuration``, which came from this space, satisfies every constraint."""
        return all(constraint.holds(configuration) for constraint in self.constraints)

    def sample(self, rng: Generator) -> Configuration:
        """A configuration drawn at random, each parameter from its own domain, until one satisfies the constraints.

        Raises InputError if none of `MAX_DRAWS` does.
        """
        return self.first_allowed(lambda: self.build(lambda parameter: parameter.domain.sample(rng)))

    def first_allowed(self, draw: Callable[[], Configuration]) -> Configuration:
        """The first configuration from ``draw`` that satisfies the constraints.

        Raises InputError if none of `MAX_DRAWS` does.
        """
        for _ in range(MAX_DRAWS):
            configuration = draw()
            if self.allows(configuration):
                return configuration
        wanted = " and ".join(map(str, self.constraints))
        remedy = "loosen a constraint, or narrow the domains to where it holds"
        raise InputError(f"constraints: none of {MAX_DRAWS:,} drawn configurations satisfies {wanted}: {remedy}")

    def grid(self) -> GridWalk:
        """Every configuration that the constraints allow once, in file order, the last parameter fastest.

        Raises LookupError if a parameter has no separate values.
        """
        return GridWalk(self.build, self.allows)

    @cached_property
    def effort(self) -> int:
        """About how many microseconds it takes to draw a configuration and to judge it."""
        return 5 + 2 * len(self.parameters) + sum(constraint.effort for constraint in self.constraints)

    @cached_property
    def size(self) -> int | float:
        """How many different configurations `grid` gives; ``math.inf`` where a range is continuous.

        With constraints the grid is counted one by one; above `MAX_COUNTED` combinations, or where judging so many
        would take long, they are not regarded.
        """
        size = product_size(self.parameters)
        few = size <= MAX_COUNTED and size * self.effort <= MAX_EFFORT
        return sum(1 for _ in self.grid()) if self.constraints and few else size

    def contains(self, configuration: Mapping[str, Any]) -> bool:
        """Whether ``configuration`` is a point of this space."""
        return not self.violations(configuration)

    def violations(self, configuration: Mapping[str, Any], partial: bool = False) -> list[tuple[Path, str]]:
        """Everything that keeps ``configuration`` out of this space: (path, what is wrong).

        ``partial``: constants and computed values may be left out. A constraint that fails has the empty path.
        """
        found: list[tuple[Path, str]] = []
        chosen: dict[Path, Any] = {}
        for parameter in self.parameters:
            value = _at(configuration, parameter.path)
            failed = [str(condition) for condition in parameter.when if not condition.holds(chosen)]
            if failed and value is not _ABSENT:
                found.append((parameter.path, f"must be absent: it exists only when {' and '.join(failed)}"))
            if failed:
                continue
            if value is _ABSENT and partial and isinstance(parameter.domain, Constant):
                value = parameter.domain.constant
            if value is not _ABSENT:
                chosen[parameter.path] = value
                if not parameter.domain.contains(value):
                    found.append((parameter.path, f"{brief(value)} is outside {parameter.domain}"))
            elif not (partial and isinstance(parameter.domain, Computed)):
                found.append((parameter.path, f"is missing: it comes from {parameter.domain}"))
        known = {parameter.path for parameter in self.parameters}
        groups = {path[:depth] for path in known for depth in range(len(path))}
        found += [(path, "is not a parameter of this space") for path in _strangers(configuration, (), known, groups)]
        if not found and self.constraints:
            whole = self.complete(configuration)
            found = [((), f"breaks the constraint {c.text!r}") for c in self.constraints if not c.holds(whole)]
        return found


def at(configuration: Mapping[str, Any], path: Path) -> Any:
    """The value at ``path``. Raises KeyError if there is none."""
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
                with no_exit():
                    value = parameter.domain.function.sample(guard(configuration))
            except RecursiveDependencyError:
                if len(waiting) + 1 == len(computed):
                    raise
                waiting.append(parameter)
            else:
                _put(configuration, parameter.path, value)
        computed = waiting


def _strangers(value: Any, path: Path, known: set[Path], groups: set[Path]) -> Iterator[Path]:
    if path in known:
        return
    if path not in groups or not isinstance(value, (Mapping, list, tuple)):
        yield path
        return
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, item in items:
        yield from _strangers(item, (*path, str(key)), known, groups)
