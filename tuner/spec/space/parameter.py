"""One parameter of a search space: its place in the configuration, its domain, and when it exists."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tuner.spec.space.domains import Computed, Constant, Domain
from tuner.spec.space.prior import Prior
from tuner.spec.values import brief, value_key, without_cache

Path = tuple[str, ...]
"""Names from the root to a parameter; the elements of a list are named ``"0"``, ``"1"``, …"""

_SHOWN = 20
"""Values of a condition that its text lists."""


@dataclass(frozen=True)
class Condition:
    """``when: {optimizer: [sgd, adam]}``: holds while the parameter at ``path`` is active and has one of ``values``."""

    path: Path
    values: tuple[Any, ...]

    @cached_property
    def identities(self) -> frozenset[Hashable]:
        """Of ``values``."""
        return frozenset(map(value_key, self.values))

    def holds(self, chosen: Mapping[Path, Any]) -> bool:
        """Whether it holds given the values of the active parameters so far."""
        return self.path in chosen and value_key(chosen[self.path]) in self.identities

    __getstate__ = without_cache

    def __str__(self) -> str:
        shown = [brief(value) for value in self.values[:_SHOWN]]
        if len(self.values) > _SHOWN:
            shown.append(f"{len(self.values) - _SHOWN:,} others")
        return f"{'.'.join(self.path)} is {' or '.join(shown)}"


@dataclass(frozen=True)
class Default:
    """``default: 1e-3``: the value of a parameter where it is not searched."""

    value: Any

    def __str__(self) -> str:
        return f"default {brief(self.value)}"


@dataclass(frozen=True)
class Parameter:
    """One leaf of the configuration; ``when`` holds the conditions of the groups around it too, outermost first."""

    path: Path
    domain: Domain
    when: tuple[Condition, ...] = ()
    prior: Prior | None = None
    default: Default | None = None

    @property
    def name(self) -> str:
        """The dotted path."""
        return ".".join(self.path)

    @property
    def free(self) -> bool:
        """Whether a searcher chooses its value."""
        return not isinstance(self.domain, (Constant, Computed))

    def condition(self) -> str:
        """Its conditions in words, with a space in front: `` when optimizer is sgd``; empty if it has none."""
        return f" when {' and '.join(map(str, self.when))}" if self.when else ""

    def active(self, chosen: Mapping[Path, Any]) -> bool:
        """Whether it exists, given the values of the earlier active parameters."""
        return all(condition.holds(chosen) for condition in self.when)
