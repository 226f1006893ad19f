"""The base of every scheduler: a specification that a user writes, and the scheduler that it builds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Annotated, ClassVar

from pydantic import Field

from tuner.spec.algorithm import AlgorithmSpec
from tuner.spec.configuration import Configuration
from tuner.spec.model import OptionError
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space


class Decision(Enum):
    """What becomes of a trial that has just reported."""

    CONTINUE = "continue"
    PAUSE = "pause"
    """It frees its resources, and waits at its checkpoint until the scheduler resumes or stops it."""
    STOP = "stop"


@dataclass(frozen=True)
class Exploit:
    """The trial that has just reported continues from the latest checkpoint of ``donor`` with ``configuration``."""

    donor: str
    configuration: Configuration


@dataclass(frozen=True)
class Resume:
    """A paused trial continues from its checkpoint."""

    trial_id: str


@dataclass(frozen=True)
class Stop:
    """A paused trial ends where it is."""

    trial_id: str


class Scheduler(ABC):
    """Decides which trials continue. Knows nothing of Ray, so that a test or a simulator drives it the same way.

    Only `report` must be defined. A scheduler can be pickled at any moment. The driver reports each trial's steps in
    order, and calls `next_action` whenever resources for a trial are free. See `SchedulerSpec` for an example.
    """

    def add(self, trial_id: str, configuration: Configuration) -> None:  # noqa: B027
        """A new trial starts.

        Args:
            trial_id: The trial.
            configuration: Its parameters.
        """

    def add_at(self, trial_id: str, configuration: Configuration, step: int) -> None:
        """A new trial starts from a checkpoint of another one; it reports nothing up to ``step``.

        By default as `add`. A scheduler that compares trials at rungs does not compare it at those up to ``step``.

        Args:
            trial_id: The trial.
            configuration: Its parameters.
            step: The fidelity of that checkpoint.
        """
        self.add(trial_id, configuration)

    def on_seconds(self, trial_id: str, seconds: float) -> None:  # noqa: B027
        """A running trial has trained for so long; `report` or `report_all` follows.

        Args:
            trial_id: The trial.
            seconds: For which it has run up to that report, those before a pause or a restart included.
        """

    @abstractmethod
    def report(self, trial_id: str, step: int, value: float) -> Decision | Exploit:
        """What becomes of a trial that has just reported.

        Args:
            trial_id: The trial.
            step: Its fidelity: the value of ``time_attr``, or the number of the report.
            value: The first objective, finite. It is as the user reports it: the task's ``sign`` times it is to be
                made large.

        Returns:
            CONTINUE, PAUSE, STOP, or `Exploit` if the trial continues from another trial's checkpoint.
        """

    def report_all(self, trial_id: str, step: int, values: tuple[float, ...]) -> Decision | Exploit:
        """What becomes of a trial that has just reported several objectives that have no weights.

        Asked instead of `report` then. By default the first objective counts. A scheduler that compares all of them
        defines it, and its specification says so by ``compares_fronts``.

        Args:
            trial_id: The trial.
            step: As of `report`.
            values: All objectives, as the user reports them.

        Returns:
            As of `report`.
        """
        return self.report(trial_id, step, values[0])

    def remove(self, trial_id: str) -> None:  # noqa: B027
        """The trial ended: by itself, by a failure, or by a decision of this scheduler.

        Args:
            trial_id: The trial.
        """

    def next_action(self, more: bool) -> Resume | Stop | None:
        """What to do with free resources. Called again until it answers None or all resources are taken.

        If no new trials can come, do not wait for them: when the answer is None then, and no trial runs, the paused
        trials end.

        Args:
            more: Whether new trials can come.

        Returns:
            The paused trial to resume or to stop; None: start a new trial, or, if none can come, leave the resources
            free.
        """
        return None


class SchedulerSpec(AlgorithmSpec):
    """The options of a scheduler, and how to build it: the base of every ``scheduler:`` block.

    A subclass declares its options as fields. They are keys of the ``scheduler:`` block, checked by their types, and
    unknown keys are errors. Only `build` must be defined. A scheduler that stops trials also says when a trial is
    complete (``fidelity``), most simply by deriving from `TimedSpec`, which has ``time_attr`` and ``max_t``.

    Example:
        >>> from tuner.schedulers import Decision, Scheduler, TimedSpec
        >>> class Threshold(TimedSpec):
        ...     at: int = 3
        ...     limit: float = 1.0
        ...     def build(self, task):
        ...         return Stopping(self.at, self.limit, task.sign)
        ...     def rungs(self):
        ...         return (self.at, self.max_t)
        >>> class Stopping(Scheduler):
        ...     def __init__(self, at, limit, sign):
        ...         self.at, self.limit, self.sign = at, limit, sign
        ...     def report(self, trial_id, step, value):
        ...         bad = step == self.at and self.sign * value < self.sign * self.limit
        ...         return Decision.STOP if bad else Decision.CONTINUE
        >>> from tuner.testing import check_scheduler
        >>> check_scheduler(Threshold(max_t=10))
    """

    group: ClassVar[str] = "tuner.schedulers"

    @abstractmethod
    def build(self, task: SearchProblem) -> Scheduler:
        """The scheduler for ``task``.

        Args:
            task: The search problem: the space, the direction of each objective, the number of trials, the fidelity
                ``max_t`` at which a trial is complete, and the seed from which alone the scheduler draws.

        Returns:
            A scheduler that can be pickled at any moment.
        """

    @property
    def fidelity(self) -> tuple[str, int] | None:
        """(name of the reported number that counts a trial's progress, its value at which a trial is complete)."""
        return None

    @property
    def ends_at(self) -> int | None:
        """The fidelity at which every trial ends; None if their functions decide."""
        return self.fidelity[1] if self.fidelity else None

    @property
    def pauses(self) -> bool:
        """Whether trials are paused or exploited, so that they must report checkpoints."""
        return False

    @property
    def changes_configurations(self) -> bool:
        """Whether running trials get other configurations instead of being stopped early."""
        return False

    def why_not_simulated(self) -> str | None:
        """Why a table of learning curves cannot stand for its trials; None if it can."""
        if self.changes_configurations:
            return "changes the configurations of running trials, and a table has no curve for that"
        return None

    def rungs(self) -> tuple[int, ...]:
        """Fidelities at which trials are compared, ascending; the last is where a trial is complete."""
        return ()

    def needs_checkpoint_at(self, before: float, step: float) -> bool:
        """Whether a trial that went from ``before`` to ``step`` may be paused there, exploited, or complete."""
        complete = self.fidelity is not None and step >= self.fidelity[1]
        return complete or any(before < rung <= step for rung in self.rungs())

    def decides_at(self, before: float, step: float) -> bool:
        """Whether anything but continuing may become of such a trial there: a stop needs no checkpoint."""
        return self.needs_checkpoint_at(before, step)

    @property
    def compares_fronts(self) -> bool:
        """Whether it compares trials by all objectives, if there are several without weights."""
        return False

    @property
    def adapts_first_rung(self) -> bool:
        """Whether any of `rungs` may become the first one while the search runs."""
        return False

    def expected_at_rungs(self, trials: int) -> tuple[float, ...]:
        """How many of ``trials`` are expected to reach each rung when the order of trials says nothing."""
        return (float(trials),) * len(self.rungs())

    def incompatibility(self, search: str) -> str | None:
        """Why this scheduler makes no sense with ``search.kind: search``, and what does; None if it makes sense."""
        return None

    def validate_space(self, space: Space) -> list[tuple[tuple[str, ...], str]]:
        """What is wrong with its options for ``space``: (path below ``scheduler``, message with the remedy)."""
        return []


_MOST_RUNGS = 100
"""Rungs of one ladder: more than any reduction factor above 1.6 gives, whatever ``max_t`` is."""


class TimedSpec(SchedulerSpec):
    """The common part of the schedulers that know when a trial is complete.

    Example:
        >>> from tuner.schedulers import Asha, TimedSpec
        >>> issubclass(Asha, TimedSpec), Asha(max_t=27).fidelity
        (True, ('training_iteration', 27))
    """

    time_attr: Annotated[str, Field(min_length=1)] = "training_iteration"
    """The reported number that counts progress; ``training_iteration`` counts reports."""
    max_t: Annotated[int, Field(ge=1)] = 100
    """R in the papers: the value of ``time_attr`` at which a trial is complete."""

    @property
    def fidelity(self) -> tuple[str, int]:
        return self.time_attr, self.max_t

    def check_grace_period(self, grace_period: int) -> None:
        """Raises ValueError if no trial would end before its end."""
        if grace_period > self.max_t:
            raise OptionError("grace_period", f"{grace_period} is above max_t {self.max_t}: it must be at most max_t")

    def check_rungs(self, rungs: Iterable[int], reduction_factor: float) -> None:
        """Raises ValueError if two of the ascending ``rungs`` are the same step, or there are too many of them."""
        for count, (rung, following) in enumerate(pairwise(rungs)):
            if count == _MOST_RUNGS:
                raise OptionError(
                    "reduction_factor",
                    f"{reduction_factor:g} gives more than {_MOST_RUNGS} rungs: choose a larger one, "
                    f"or a larger grace_period",
                )
            if rung == following:
                raise OptionError(
                    "reduction_factor",
                    f"{reduction_factor:g} puts two rungs on {self.time_attr} {rung}: choose a larger one, or a "
                    f"larger grace_period",
                )


class StoppingSpec(TimedSpec):
    """The common part of the schedulers that end trials before ``max_t``.

    Example:
        >>> from tuner.schedulers import Asha, StoppingSpec
        >>> issubclass(Asha, StoppingSpec), Asha(max_t=27).audit
        (True, 0.0)
    """

    audit: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """The share of the trials to be stopped that continue to ``max_t`` all the same, drawn at random. From these
    ``show`` and ``report`` tell what stopping cost. 0.05 to 0.1 suits searches of a hundred trials and more."""

    @property
    def ends_at_max_t(self) -> bool:
        """Whether a trial ends there; otherwise its function decides when it returns."""
        return True

    @property
    def ends_at(self) -> int | None:
        return self.max_t if self.ends_at_max_t else None

    def with_audit(self, reached: Iterable[float], trials: int) -> tuple[float, ...]:
        """How many of ``trials`` reach each rung, if so many do without an audit."""
        return tuple(count + self.audit * (trials - count) for count in reached)
