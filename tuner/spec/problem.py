"""What searchers and schedulers know of an experiment."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.spec.objective import Mode
from tuner.spec.space import Space


@dataclass(frozen=True)
class SearchProblem:
    """The part of an experiment that decides which configurations run, and for how long.

    Example:
        >>> from tuner.searchers import SearchProblem
        >>> from tuner.testing import space_of
        >>> problem = SearchProblem(space_of({"lr": {"uniform": [0, 1]}}), modes=("min",), trials=8, max_t=27, seed=0)
        >>> problem.sign
        -1
    """

    space: Space
    modes: tuple[Mode, ...]
    """Of each objective; the first is the one that stands for all where one number is needed."""
    trials: int
    """How many configurations will be asked for at most."""
    max_t: int | None
    """The fidelity (in steps) at which a trial is complete; None if the scheduler knows none."""
    seed: int
    earlier: int = 0
    """How many trials of earlier runs the searcher learns from before it suggests anything."""

    @property
    def mode(self) -> Mode:
        """Of the first objective."""
        return self.modes[0]

    @property
    def sign(self) -> int:
        """1 or -1: the first objective times this is to be made large."""
        return self.signs[0]

    @property
    def signs(self) -> tuple[int, ...]:
        """The same of each objective."""
        return tuple(1 if mode == "max" else -1 for mode in self.modes)
