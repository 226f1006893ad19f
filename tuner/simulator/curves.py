"""What a simulated trial reports, and when: the base of tables and of functions that give learning curves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tuner.errors import InputError
from tuner.spec.configuration import Configuration
from tuner.spec.objective import Mode
from tuner.spec.space import Space, at

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DRAWS = 4096
"""Configurations at random that stand for the space of a function."""

_CLIMBERS, _ROUNDS, _STEPS = 16, 24, 32
"""The search for the best value of a function: so many of the best draws, rounds, and steps of each in a round."""


class Curves(ABC):
    """The learning curve of every configuration of a space, all over the same fidelities."""

    name: str
    space: Space
    metric: str
    fidelity: str
    """Name of what counts progress."""
    fidelities: tuple[int, ...]
    """Ascending."""

    @property
    def guessed(self) -> float:
        """The share of values that were not measured, but carried on from earlier ones."""
        return 0.0

    @abstractmethod
    def at(self, configuration: Configuration) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The values and the cumulative seconds of ``configuration``: one of each a fidelity."""

    @property
    @abstractmethod
    def sample(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The same of many configurations that stand for the space: one row a configuration."""

    @abstractmethod
    def best(self, mode: Mode) -> float:
        """The best value of all, which a search would have to find."""


@dataclass(frozen=True, eq=False)
class CurveFunction(Curves):
    """Learning curves that a function computes: a formula, or a surrogate model such as an ONNX file.

    A table answers a configuration with its nearest row, and so punishes a search that asks precisely. A function
    answers what it was asked.

    Args:
        name: A name for messages and figures.
        space: The search space.
        metric: A name for the values.
        fidelity: A name for what counts progress, such as ``epoch``.
        fidelities: Ascending whole numbers, such as the epochs 1 to 50.
        function: Takes n configurations; returns their values and their cumulative seconds, two arrays of n rows and
            one column a fidelity.

    Example:
        >>> import numpy
        >>> import tuner
        >>> from tuner.simulator import CurveFunction
        >>> from tuner.testing import space_of
        >>> def parabola(configurations):
        ...     x = numpy.array([[configuration["x"]] for configuration in configurations])
        ...     epochs = numpy.arange(1, 4)
        ...     return (x - 0.3) ** 2 + 1 / epochs, epochs + 0 * x
        >>> space = space_of({"x": {"uniform": [0, 1]}})
        >>> curves = CurveFunction("parabola", space, "loss", "epoch", (1, 2, 3), parabola)
        >>> trace = tuner.simulate(tuner.searchers.Random(), tuner.schedulers.Fifo(), curves, "min", trials=20)
        >>> trace.trials, bool(trace.incumbents[-1] < curves.best("min") + 0.1)
        (20, True)
    """

    name: str
    space: Space
    metric: str
    fidelity: str
    fidelities: tuple[int, ...]
    function: Callable[[Sequence[Configuration]], tuple[NDArray[np.float64], NDArray[np.float64]]]
    _bests: dict[Mode, float] = field(default_factory=dict, init=False)

    def at(self, configuration: Configuration) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        values, seconds = self._of([configuration])
        return values[0], seconds[0]

    @cached_property
    def sample(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of `_DRAWS` configurations at random."""
        return self._of(self._drawn)

    def best(self, mode: Mode) -> float:
        """The best value that a local search from the best draws finds, at any fidelity."""
        if mode not in self._bests:
            self._bests[mode] = self._climbed(1.0 if mode == "max" else -1.0)
        return self._bests[mode]

    def _climbed(self, sign: float) -> float:
        import numpy as np

        rng = np.random.default_rng(1)
        order = np.argsort(-(sign * self.sample[0]).max(axis=1))[:_CLIMBERS]
        places = [(self._point(self._drawn[k]), float((sign * self.sample[0][k]).max())) for k in order]
        for round_ in range(_ROUNDS):
            width = 0.3 * 0.75**round_
            tried = [self._near(point, width, rng) for point, _ in places for _ in range(_STEPS)]
            tops = (sign * self._of([self._configured(point) for point in tried])[0]).max(axis=1)
            for k, (_, top) in enumerate(places):
                mine = slice(k * _STEPS, (k + 1) * _STEPS)
                found = int(tops[mine].argmax())
                if tops[mine][found] > top:
                    places[k] = tried[mine][found], float(tops[mine][found])
        return sign * max(top for _, top in places)

    @cached_property
    def _drawn(self) -> list[Configuration]:
        import numpy as np

        rng = np.random.default_rng(0)
        return [self.space.sample(rng) for _ in range(_DRAWS)]

    def _of(self, configurations: Sequence[Configuration]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        import numpy as np

        values, seconds = (np.asarray(array, dtype=np.float64) for array in self.function(configurations))
        shape = len(configurations), len(self.fidelities)
        if values.shape != shape or seconds.shape != shape:
            raise InputError(
                f"{self.name}: the function gave arrays of {values.shape} and {seconds.shape}, not {shape}"
            )
        if not (np.isfinite(values).all() and np.isfinite(seconds).all() and (np.diff(seconds, axis=1) >= 0).all()):
            raise InputError(f"{self.name}: values must be finite, and seconds cumulative")
        return values, seconds

    def _point(self, configuration: Configuration) -> dict[str, float]:
        found: dict[str, float] = {}
        for parameter in self.space.parameters:
            if parameter.free:
                try:
                    found[parameter.name] = parameter.domain.to_unit(at(configuration, parameter.path))
                except KeyError:  # a condition makes it inactive
                    found[parameter.name] = 0.5
        return found

    def _near(self, point: dict[str, float], width: float, rng: np.random.Generator) -> dict[str, float]:
        """Another point: about half of the coordinates moved by ``width`` or so."""
        moved = {
            name: min(max(u + width * rng.standard_normal(), 0.0), 1.0) if rng.random() < 0.5 else u
            for name, u in point.items()
        }
        return moved if self.space.allows(self._configured(moved)) else point

    def _configured(self, point: dict[str, float]) -> Configuration:
        return self.space.build(lambda parameter: parameter.domain.from_unit(point[parameter.name]))
