"""What a simulated trial reports, and when: the base of tables and of functions that give learning curves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from tuner.errors import InputError
from tuner.spec.configuration import Configuration
from tuner.spec.objective import Mode
from tuner.spec.space import Space

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DRAWS = 4096
"""Configurations at random that stand for the space of a function."""

_CLIMBERS, _ROUNDS, _STEPS = 16, 24, 32
"""The search for the best value of a function: so many of the best draws, rounds, and steps of each in a round."""


class Curves(ABC):
    """The learning curve of every configuration of a space, all over the same fidelities."""

    what: ClassVar[str]
    """For messages: what gives the curves."""
    name: str
    space: Space
    metric: str
    """The name of the values."""
    fidelity: str
    """The name of what counts progress."""
    fidelities: tuple[int, ...]
    """Ascending."""
    measured: float
    """The share of the values that was measured, and not carried on from earlier ones."""

    @abstractmethod
    def learning_curve(self, configuration: Configuration) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
        fidelities: Ascending whole numbers, such as the epochs 1 to 50.
        function: Takes n configurations; returns their values and their cumulative seconds, two arrays of n rows and
            one column a fidelity.
        metric: The name of the values, for messages and figures.
        fidelity: What counts progress, for messages.

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
        >>> curves = CurveFunction("parabola", space, (1, 2, 3), parabola)
        >>> trace = tuner.simulate(tuner.searchers.Random(), tuner.schedulers.Fifo(), curves, "min", trials=20)
        >>> trace.trials, bool(trace.incumbents[-1] < curves.best("min") + 0.1)
        (20, True)
    """

    what = "function"
    name: str
    space: Space
    fidelities: tuple[int, ...]
    function: Callable[[Sequence[Configuration]], tuple[NDArray[np.float64], NDArray[np.float64]]]
    metric: str = "value"
    fidelity: str = "epoch"
    measured: float = field(default=1.0, init=False)
    _bests: dict[Mode, float] = field(default_factory=dict, init=False)

    def learning_curve(self, configuration: Configuration) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
        points = [np.nan_to_num(self.space.to_unit(self._drawn[k]), nan=0.5) for k in order]
        tops = (sign * self.sample[0][order]).max(axis=1)
        for round_ in range(_ROUNDS):
            tried = [self._near(point, 0.3 * 0.75**round_, rng) for point in points for _ in range(_STEPS)]
            found = (sign * self._of([self.space.from_unit(point) for point in tried])[0]).max(axis=1)
            for k in range(len(points)):
                best = k * _STEPS + int(found[k * _STEPS : (k + 1) * _STEPS].argmax())
                if found[best] > tops[k]:
                    points[k], tops[k] = tried[best], found[best]
        return sign * float(tops.max())

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

    def _near(self, point: NDArray[np.float64], width: float, rng: np.random.Generator) -> NDArray[np.float64]:
        """Another point: about half of the coordinates moved by ``width`` or so."""
        moves = width * rng.standard_normal(len(point)) * (rng.random(len(point)) < 0.5)
        moved = (point + moves).clip(0, 1)
        return moved if self.space.allows(self.space.from_unit(moved)) else point
