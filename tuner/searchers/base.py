"""What every search algorithm is: a specification that a user writes, and the searcher that it builds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from tuner.configuration import Configuration
from tuner.spec.model import Model
from tuner.spec.space import Space


@dataclass(frozen=True)
class SearchTask:
    """All that a searcher is told of the experiment."""

    space: Space
    mode: Literal["min", "max"]
    trials: int
    """How many configurations will be asked for at most."""
    max_t: int | None
    """The fidelity (in steps) at which a trial is complete; None where the scheduler knows none."""
    seed: int


class Searcher(ABC):
    """Suggests configurations. Knows nothing of Ray, so that a test or a simulator drives it the same way.

    A searcher can be pickled at any moment, and goes on with the same sequence when it is unpickled.
    """

    @abstractmethod
    def suggest(self, trial_id: str) -> Configuration | None:
        """The next configuration, to be known as ``trial_id``; None when the space is exhausted."""

    def observe(self, trial_id: str, step: int, value: float) -> None:  # noqa: B027
        """A running trial reported the finite objective ``value`` at ``step`` (1-based fidelity)."""

    def end(self, trial_id: str, step: int, value: float | None) -> None:  # noqa: B027
        """The trial ended: ``value`` is its last objective at ``step``, or None when it failed.

        A trial with ``step`` below the task's ``max_t`` was stopped early.
        """


class SearchSpec(Model):
    """The common part of every ``search:`` block."""

    seed: int | None = Field(default=None, ge=0, lt=2**32)
    """Same seed, same sequence of configurations (with one trial at a time); drawn and recorded when absent."""

    @abstractmethod
    def build(self, task: SearchTask) -> Searcher:
        """The searcher for ``task``."""

    def complaints(self, space: Space) -> list[tuple[tuple[str, ...], str]]:
        """What this algorithm cannot do with ``space``: (path of the parameter, message with the remedy)."""
        return []

    def default_trials(self, space: Space) -> int:
        """How many trials run when ``budget.trials`` is absent."""
        return 20
