"""The domains of a search space: from what set, and with what probability, the value of one parameter is drawn.

This file holds what every domain is and those made of separate values; `tuner.spec.space.ranges` holds the numeric
ones. Names, argument order and ranges are Ray Tune's (``ray/tune/search/sample.py``, Ray 2.60), so that a space means
the same in YAML and in Ray. Neither Ray nor numpy is imported: a random generator arrives as an argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tuner.spec.values import brief, contains, value_key, without_cache

if TYPE_CHECKING:
    from numpy.random import Generator


class Domain(ABC):
    """The values that one parameter can take."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name under which YAML and Ray Tune know it, such as ``loguniform``."""

    @abstractmethod
    def from_unit(self, u: float) -> Any:
        """The value, of a plain Python type, below which a share ``u`` in [0, 1] of the domain's probability lies.

        A uniform ``u`` gives a draw from the domain.
        """

    @abstractmethod
    def to_unit(self, value: Any) -> float:
        """The position of ``value`` in [0, 1]: about the centre of all ``u`` for which `from_unit` gives it."""

    def sample(self, rng: Generator) -> Any:
        """One value, of a plain Python type."""
        return self.from_unit(rng.random())

    @abstractmethod
    def contains(self, value: Any) -> bool:
        """Whether ``value`` can come out of this domain (1 may stand for 1.0, ``True`` for neither)."""

    @abstractmethod
    def probes(self) -> tuple[Any, ...]:
        """Values that stand for all the others in a check: both ends of a range, or every choice."""

    @abstractmethod
    def to_yaml(self) -> Any:
        """What the space's YAML holds for this domain."""

    @property
    def count(self) -> int | None:
        """How many separate values there are; None if they cannot be enumerated."""
        return None

    def value(self, index: int) -> Any:
        """The value at ``index`` in ``range(count)``. Raises LookupError if values cannot be enumerated."""
        raise LookupError(f"{self} has no separate values")

    def values(self) -> tuple[Any, ...] | None:
        """All values in order, or None if they cannot be enumerated."""
        return None if self.count is None else tuple(self.value(i) for i in range(self.count))

    def problems(self) -> Iterator[tuple[str, str]]:
        """Every rule that the arguments break: (name of the argument, what is wrong)."""
        return iter(())

    def describe(self) -> str:
        """The domain in one line, much as YAML shows it: ``loguniform [0.0001, 0.1]``."""
        return f"{self.name} {brief(self.to_yaml()[self.name])}"

    def __str__(self) -> str:
        return self.describe()


@dataclass(frozen=True)
class Choice(Domain):
    """``choice``: one of some values of any type, each as likely as the others."""

    categories: tuple[Any, ...]

    @property
    def name(self) -> str:
        return "choice"

    def from_unit(self, u: float) -> Any:
        return self.categories[min(int(u * len(self.categories)), len(self.categories) - 1)]

    @cached_property
    def _index(self) -> dict[Hashable, int]:
        """The first position of each of ``categories``, by its identity."""
        index: dict[Hashable, int] = {}
        for i, value in enumerate(self.categories):
            index.setdefault(value_key(value), i)
        return index

    __getstate__ = without_cache

    def to_unit(self, value: Any) -> float:
        index = self._index.get(value_key(value))
        if index is None:
            raise ValueError(f"{brief(value)} is outside {self}")
        return (index + 0.5) / len(self.categories)

    def contains(self, value: Any) -> bool:
        return value_key(value) in self._index

    def probes(self) -> tuple[Any, ...]:
        return self.categories

    @property
    def count(self) -> int:
        return len(self.categories)

    def value(self, index: int) -> Any:
        return self.categories[index]

    def problems(self) -> Iterator[tuple[str, str]]:
        if not self.categories:
            yield "", "holds no value: write at least one"

    def to_yaml(self) -> Any:
        return {self.name: list(self.categories)}


@dataclass(frozen=True)
class GridSearch(Choice):
    """``grid_search``: like ``choice``, but a search that draws at random goes through all values in turn."""

    @property
    def name(self) -> str:
        return "grid_search"


@dataclass(frozen=True)
class Constant(Domain):
    """A single value: every configuration has it."""

    constant: Any

    @property
    def name(self) -> str:
        return "constant"

    def from_unit(self, u: float) -> Any:
        return self.constant

    def to_unit(self, value: Any) -> float:
        return 0.5

    def contains(self, value: Any) -> bool:
        return contains((self.constant,), value)

    def probes(self) -> tuple[Any, ...]:
        return (self.constant,)

    @property
    def count(self) -> int:
        return 1

    def value(self, index: int) -> Any:
        return self.constant

    def to_yaml(self) -> Any:
        return self.constant

    def describe(self) -> str:
        return f"constant {brief(self.constant)}"


@dataclass(frozen=True)
class Computed(Domain):
    """``tune.sample_from``: a value computed from the rest of the configuration; exists in Python only.

    ``Space.build`` computes it after all the others, so that no searcher ever chooses it.
    """

    function: Any
    """The ``ray.tune.search.sample.Function`` itself."""

    @property
    def name(self) -> str:
        return "sample_from"

    def from_unit(self, u: float) -> Any:
        raise LookupError("a computed value depends on its configuration: Space.build computes it")

    def to_unit(self, value: Any) -> float:
        return 0.5

    def contains(self, value: Any) -> bool:
        return True

    def probes(self) -> tuple[Any, ...]:
        return ()

    @property
    def count(self) -> int:
        return 1

    def to_yaml(self) -> Any:
        raise ValueError("sample_from exists in Python only")

    def describe(self) -> str:
        return f"sample_from {getattr(self.function.func, '__name__', 'a function')}"
