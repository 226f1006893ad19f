"""The base of every search algorithm: a specification that a user writes, and the searcher that it builds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from tuner.spec.algorithm import AlgorithmSpec
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space


@dataclass(frozen=True)
class PastTrial:
    """What a searcher can learn of a trial of an earlier run.

    Example:
        >>> from tuner.searchers import PastTrial
        >>> PastTrial("runs/a/1", {"lr": 0.1}, reports=((1, 0.9), (2, 0.5)), step=2, values=(0.5,)).step
        2
    """

    id: str
    configuration: Configuration
    """A point of the space."""
    reports: tuple[tuple[int, float], ...]
    """In order: fidelity, and first objective."""
    step: int
    """As of `Searcher.on_end`."""
    values: tuple[float, ...] | None
    """As of `Searcher.on_end`."""
    margins: tuple[tuple[float, ...], ...] = ()
    """As of `Searcher.on_margins`, of each report; empty without outcome constraints."""


class Searcher(ABC):
    """Suggests configurations. Knows nothing of Ray, so that a test or a simulator drives it the same way.

    Only `suggest` must be defined. A searcher that learns defines the others too. A searcher can be pickled at any
    moment, and continues with the same sequence when it is unpickled. See `SearchSpec` for an example.
    """

    @abstractmethod
    def suggest(self, trial_id: str) -> Configuration | None:
        """The next configuration.

        Args:
            trial_id: The name of the new trial, by which later calls tell what became of it.

        Returns:
            A point of the space, of plain Python values (`Space.build` and `Space.sample` give such); None if the
            space is exhausted.
        """

    def register(self, trial_id: str, configuration: Configuration) -> None:  # noqa: B027
        """Takes note of a configuration that this searcher did not suggest, and that runs.

        Args:
            trial_id: The trial.
            configuration: A point of the space.
        """

    def on_margins(self, trial_id: str, margins: tuple[float, ...]) -> None:  # noqa: B027
        """A running trial reported metrics that are limited; `on_report` follows.

        Args:
            trial_id: The trial.
            margins: Of each outcome constraint, by how much it is kept (positive) or broken (negative), relative to its
                limit unless that is 0. Never called if the experiment has none.
        """

    def on_seconds(self, trial_id: str, seconds: float) -> None:  # noqa: B027
        """A running trial has trained for so long; `on_report` follows. Never called of trials of earlier runs.

        Args:
            trial_id: The trial.
            seconds: For which it has run up to that report, those before a pause or a restart included.
        """

    def on_report(self, trial_id: str, step: int, value: float) -> None:  # noqa: B027
        """A running trial reported.

        Args:
            trial_id: The trial.
            step: Its fidelity, from 1: the value of ``time_attr``, or the number of the report.
            value: The first objective, finite, as the user reports it.
        """

    def on_pause(self, trial_id: str, step: int, values: tuple[float, ...]) -> None:  # noqa: B027
        """A running trial waits: it is resumed, or ends there.

        Args:
            trial_id: The trial.
            step: The fidelity of its last report.
            values: All objectives of that report.
        """

    def on_resume(self, trial_id: str) -> None:  # noqa: B027
        """A paused trial runs again.

        Args:
            trial_id: The trial.
        """

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:  # noqa: B027
        """The trial ended. If ``step`` is below the problem's ``max_t``, it was stopped early.

        Args:
            trial_id: The trial.
            step: The fidelity of its last report.
            values: All objectives of that report; None if the trial failed.
        """

    def learn(self, trial: PastTrial) -> None:
        """Takes note of a trial of an earlier run, before the first suggestion.

        Args:
            trial: The trial.
        """
        self.register(trial.id, trial.configuration)
        for number, (step, value) in enumerate(trial.reports):
            if trial.margins:
                self.on_margins(trial.id, trial.margins[number])
            self.on_report(trial.id, step, value)
        self.on_end(trial.id, trial.step, trial.values)


def initial_trials(most: int, trials: int, least: int = 1) -> int:
    """The default of how many trials come before a model: a third of them, so that a short search models too."""
    return max(least, min(most, trials // 3))


class SearchSpec(AlgorithmSpec):
    """The options of a search algorithm, and how to build it: the base of every ``search:`` block.

    A subclass declares its options as fields. They are keys of the ``search:`` block, checked by their types, and
    unknown keys are errors. Only `build` must be defined; the other methods answer questions of ``validate``.

    Example:
        >>> from tuner.searchers import Searcher, SearchSpec
        >>> class Repeat(SearchSpec):
        ...     times: int = 2
        ...     def build(self, task):
        ...         return Repeated(task, self.times)
        >>> class Repeated(Searcher):
        ...     def __init__(self, task, times):
        ...         from numpy.random import default_rng
        ...         self.space, self.rng, self.times = task.space, default_rng(task.seed), times
        ...         self.left, self.latest = 0, {}
        ...     def suggest(self, trial_id):
        ...         if self.left == 0:
        ...             self.left, self.latest = self.times, self.space.sample(self.rng)
        ...         self.left -= 1
        ...         return dict(self.latest)
        >>> from tuner.testing import check_searcher
        >>> check_searcher(Repeat(times=3))
    """

    group: ClassVar[str] = "tuner.searchers"

    seed: int | None = Field(default=None, ge=0, lt=2**32)
    """Same seed, same sequence of configurations (with one trial at a time); drawn and recorded when absent."""

    points_to_evaluate: Annotated[tuple[Configuration, ...], Field(strict=False)] = ()
    """Known good configurations, which run first, in this order; constants may be left out. Then come the defaults of
    the search space, and the mode of its priors; parameters that have neither are drawn at random."""

    from_runs: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Earlier runs, folders or URIs, whose trials the model learns from before the first suggestion. Their search
    spaces may differ: those trials count that lie in this one. They must have reported the same objective."""

    @abstractmethod
    def build(self, task: SearchProblem) -> Searcher:
        """The searcher for ``task``.

        Args:
            task: The search problem: the space, the direction of each objective, the number of trials, the fidelity
                ``max_t`` at which a trial is complete, and the seed from which alone the searcher draws.

        Returns:
            A searcher that can be pickled at any moment.
        """

    @property
    def max_objectives(self) -> float:
        """How many objectives it can search for at once; infinite if any number is the same to it."""
        return 1

    def for_trials(self, trials: int) -> SearchSpec:
        """A copy in which the options that depend on the number of trials have a value also where they are absent."""
        return self

    def modelled(self, task: SearchProblem, slots: int) -> float | None:
        """About how many suggestions of the search for ``task`` come from a model of results.

        ``slots``: how many trials run at once. None where only a class of the user's knows.
        """
        return 0

    def _after(self, initial: int, task: SearchProblem, slots: int) -> int:
        """How many suggestions are made when the results of ``initial`` trials are known."""
        waits = initial - task.earlier + slots - 1 if task.earlier < initial else 0
        return max(0, task.trials - max(waits, len(self.points_to_evaluate)))

    @property
    def models_margins(self) -> bool:
        """Whether it learns from `Searcher.on_margins` which results keep the outcome constraints.

        Then it gets all values as they are reported. See ``compares_ranks`` for the others.
        """
        return False

    def mixes_fidelities(self, task: SearchProblem) -> bool:
        """Whether it compares the last values of trials that ended or pause at different steps as they are."""
        return False

    @property
    def follows_priors(self) -> bool:
        """Whether it makes use of priors where a space has some."""
        return True

    @property
    def models_earlier_runs(self) -> bool:
        """Whether its model can learn from trials that another search suggested."""
        return True

    def validate_options(self) -> list[tuple[tuple[str, ...], str]]:
        """Errors in the options that only a trial of them shows: (path in ``search``, message)."""
        return []

    def validate_space(self, space: Space) -> list[tuple[tuple[str, ...], str]]:
        """What this algorithm cannot do with ``space``: (path of the parameter, message with the remedy)."""
        return []

    def repeats(self, space: Space) -> bool:
        """Whether it suggests configurations again when all of ``space`` have run; if not, the search ends there."""
        return self.default_trials(space) != space.size

    def default_trials(self, space: Space) -> int:
        """How many trials run when ``budget.trials`` is absent."""
        return 20
