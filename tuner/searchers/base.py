"""What every search algorithm is: a specification that a user writes, and the searcher that it builds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated

from pydantic import Field

from tuner.configuration import Configuration
from tuner.spec.model import Model
from tuner.spec.space import Space
from tuner.spec.task import Task


class Searcher(ABC):
    """Suggests configurations. Knows nothing of Ray, so that a test or a simulator drives it the same way.

    A searcher can be pickled at any moment, and goes on with the same sequence when it is unpickled.
    """

    @abstractmethod
    def suggest(self, trial_id: str) -> Configuration | None:
        """The next configuration, to be known as ``trial_id``; None when the space is exhausted."""

    def adopt(self, trial_id: str, configuration: Configuration) -> None:  # noqa: B027
        """``configuration``, a point of the space that this searcher did not suggest, runs as ``trial_id``."""

    def observe(self, trial_id: str, step: int, value: float) -> None:  # noqa: B027
        """A running trial reported the finite first objective ``value`` at ``step`` (1-based fidelity)."""

    def pause(self, trial_id: str, step: int, values: tuple[float, ...]) -> None:  # noqa: B027
        """A running trial waits with these last objectives, reported at ``step``: it is resumed, or ends there."""

    def resume(self, trial_id: str) -> None:  # noqa: B027
        """A paused trial runs again."""

    def end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:  # noqa: B027
        """The trial ended: ``values`` are its last objectives, reported at ``step``, or None when it failed.

        A trial with ``step`` below the task's ``max_t`` was stopped early.
        """


class SearchSpec(Model):
    """The common part of every ``search:`` block."""

    seed: int | None = Field(default=None, ge=0, lt=2**32)
    """Same seed, same sequence of configurations (with one trial at a time); drawn and recorded when absent."""

    points_to_evaluate: Annotated[tuple[Configuration, ...], Field(strict=False)] = ()
    """Known good configurations, which run first, in this order; constants may be left out."""

    @abstractmethod
    def build(self, task: Task) -> Searcher:
        """The searcher for ``task``."""

    @property
    def max_objectives(self) -> float:
        """How many objectives it can search for at once; infinite where any number is the same to it."""
        return 1

    def searcher(self, task: Task) -> Searcher:
        """The searcher for ``task``, which gives ``points_to_evaluate`` first and nothing that a constraint forbids."""
        from tuner.searchers.guarded import Guarded  # it is a Searcher, and so needs this file

        inner = self.build(task)
        guarded = self.points_to_evaluate or task.space.constraints
        return Guarded(inner, task, self.points_to_evaluate) if guarded else inner

    def option_complaints(self) -> list[tuple[tuple[str, ...], str]]:
        """What is wrong with the options and only shows when they are tried: (path in ``search``, message)."""
        return []

    def complaints(self, space: Space) -> list[tuple[tuple[str, ...], str]]:
        """What this algorithm cannot do with ``space``: (path of the parameter, message with the remedy)."""
        return []

    def default_trials(self, space: Space) -> int:
        """How many trials run when ``budget.trials`` is absent."""
        return 20
