"""Population-based training without its explore step: who copies whom, who runs, and what is kept of it."""

from __future__ import annotations

import copy
import heapq
import itertools
import math
from abc import abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from tuner.errors import did_you_mean
from tuner.schedulers.base import Decision, Exploit, Resume, Scheduler, Stop, TimedSpec
from tuner.spec.configuration import Configuration
from tuner.spec.problem import Task
from tuner.spec.space import Choice, Domain, Parameter, Space, at
from tuner.spec.values import index_of

if TYPE_CHECKING:
    from numpy.random import Generator

_TRIES = 100
"""How many proposals of an explore step may break the space's constraints before the donor's configuration is kept."""

_ROUNDING = 1e-9
"""0.1 * 30 is 3.0000000000000004."""


class PopulationSpec(TimedSpec):
    """What ``pbt`` and ``pb2`` have in common. All ``budget.trials`` trials are one population.

    Whenever a trial comes to a multiple of ``perturbation_interval`` its result is compared with the latest such result
    of the others. One in the bottom ``quantile_fraction`` continues from the checkpoint of one drawn from the top
    ``quantile_fraction`` (exploit), with a configuration made from that trial's (explore). Nobody is replaced before
    each trial of the population has such a result. Asynchronous, as in the paper; there is no ``synch``. With fewer
    slots than trials, a trial pauses at its interval while another is behind it, and the one furthest behind continues.
    A trial ends at ``max_t``, which Ray has not.
    """

    perturbation_interval: Annotated[int, Field(ge=1)] = 5
    """In units of ``time_attr``: a trial may be replaced at its multiples (``ready`` in the paper)."""
    burn_in_period: Annotated[int, Field(ge=0)] = 0
    """No trial is replaced before this value of ``time_attr``."""
    quantile_fraction: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    """The share of the population that is replaced, and that it is replaced by (truncation selection)."""
    resample_probability: Annotated[float, Field(ge=0, le=1)] = 0.25
    """With what probability a mutated value is drawn from its domain anew."""
    mutate: Annotated[tuple[str, ...], Field(min_length=1, strict=False)] | None = None
    """Names of the parameters that may change, such as ``model.dropout``; by default all that a search chooses. Leave
    out those that shape the model: the donor's weights must fit, or the trial fails."""

    @model_validator(mode="after")
    def _check(self) -> PopulationSpec:
        first = self.milestone(max(0, self.burn_in_period - 1))
        if first >= self.max_t:
            raise ValueError(
                f"perturbation_interval {self.perturbation_interval} with burn_in_period {self.burn_in_period} makes "
                f"{first} the first step at which a trial may change: it must be below max_t {self.max_t}"
            )
        return self

    def milestone(self, step: int) -> int:
        """The next multiple of ``perturbation_interval`` after ``step``."""
        return (step // self.perturbation_interval + 1) * self.perturbation_interval

    @property
    def pauses(self) -> bool:
        return True

    @property
    def changes_configurations(self) -> bool:
        return True

    def may_halt(self, before: float, step: float) -> bool:
        return step // self.perturbation_interval > before // self.perturbation_interval or step >= self.max_t

    def unsuited(self, search: str) -> str | None:
        kind = type(self).model_fields["kind"].default
        if search == "random":
            return None
        return (
            f"{kind} changes configurations itself, and {search} search would learn from what it did not suggest: "
            f"use search.kind random (it gives the first population), or scheduler.kind asha"
        )

    def complaints(self, space: Space) -> list[tuple[tuple[str, ...], str]]:
        free = [parameter.name for parameter in space.parameters if parameter.free]
        if not free:
            return [(("kind",), "changes configurations, but the search space has no parameter to change: use fifo")]
        return [
            (("mutate",), f"{name!r} is no parameter that can change; {did_you_mean(name, free)}")
            for name in self.mutate or ()
            if name not in free
        ]


@dataclass(frozen=True)
class Perturbation:
    """``trial_id`` was replaced by ``donor``: it continued from the donor's checkpoint with another configuration."""

    step: int
    """Of the donor's latest report: what was trained up to it was trained with ``before``."""
    trial_id: str
    donor: str
    before: Configuration
    """The donor's configuration."""
    after: Configuration


@dataclass
class _Member:
    """One trial of the population that has not ended."""

    configuration: Configuration
    milestone: int
    """The step at which it is compared next."""
    step: int = 0
    rank: tuple[float, int, str] | None = None
    """Its entry among the ranked: (quality, order of arrival, trial)."""


class Population(Scheduler):
    """Exploits; what a subclass `_proposes` explores. The cost of a decision grows with the logarithm of the trials."""

    def __init__(self, spec: PopulationSpec, task: Task, rng: Generator) -> None:
        self._spec = spec
        self._sign = task.sign
        self._space = task.space
        self._rng = rng
        self._mutable = {
            p.path for p in task.space.parameters if p.free and (spec.mutate is None or p.name in spec.mutate)
        }
        self._size: float = task.trials
        """Of the population; lowered when no more trials can come."""
        self._order = 0
        self._started = 0
        self._all_compared = False
        self._members: dict[str, _Member] = {}
        self._ranked: list[tuple[float, int, str]] = []
        """The latest compared results, worst first. One that was replaced has none until it is compared again."""
        self._paused: set[str] = set()
        self._queue: list[tuple[int, int, str]] = []
        """A heap of (step, order, trial) of the paused trials, and of some that have ended since."""
        self._lineages: dict[str, tuple[Perturbation, ...]] = {}

    def lineage(self, trial_id: str) -> tuple[Perturbation, ...]:
        """The perturbations through which the weights of ``trial_id`` came, oldest first.

        Each one's ``after`` is the next one's ``before``: the weights were trained with the first ``before`` up to its
        ``step``, with the first ``after`` from there up to the second ``step``, and so forth.
        """
        return self._lineages.get(trial_id, ())

    def add(self, trial_id: str, configuration: Configuration) -> None:
        self._started += 1
        first = self._spec.milestone(max(0, self._spec.burn_in_period - 1))
        self._members[trial_id] = _Member(copy.deepcopy(configuration), first)

    def report(self, trial_id: str, step: int, value: float) -> Decision | Exploit:
        if step >= self._spec.max_t:
            return Decision.STOP
        member = self._members[trial_id]
        member.step = step
        if step < member.milestone:
            return Decision.CONTINUE
        self._rank(trial_id, self._sign * value)
        member.milestone = self._spec.milestone(step)
        donor = self._donor(trial_id)
        if donor is not None:
            return self._exploit(trial_id, donor)
        if self._somebody_is_behind(step):
            self._paused.add(trial_id)
            heapq.heappush(self._queue, (step, self._tick(), trial_id))
            return Decision.PAUSE
        return Decision.CONTINUE

    def remove(self, trial_id: str) -> None:
        self._unrank(trial_id)
        self._members.pop(trial_id, None)
        self._paused.discard(trial_id)

    def next(self, more: bool) -> Resume | Stop | None:
        if more:  # a new trial is furthest behind
            return None
        self._size = min(self._size, self._started)
        self._forget_ended()
        if not self._queue:
            return None
        trial_id = heapq.heappop(self._queue)[2]
        self._paused.remove(trial_id)
        return Resume(trial_id)

    # --- exploit ---

    def _rank(self, trial_id: str, quality: float) -> None:
        self._unrank(trial_id)
        self._members[trial_id].rank = entry = (quality, self._tick(), trial_id)
        insort(self._ranked, entry)

    def _unrank(self, trial_id: str) -> None:
        member = self._members.get(trial_id)
        if member and member.rank:
            del self._ranked[bisect_left(self._ranked, member.rank)]
            member.rank = None

    def _donor(self, trial_id: str) -> str | None:
        """Who replaces ``trial_id``; None where nobody does."""
        complete = self._started >= self._size and len(self._ranked) == len(self._members)
        self._all_compared = self._all_compared or complete
        entry = self._members[trial_id].rank
        assert entry is not None
        count = math.ceil(self._spec.quantile_fraction * len(self._ranked) - _ROUNDING)
        count = min(count, len(self._ranked) // 2)
        if not self._all_compared or bisect_left(self._ranked, entry) >= count:
            return None
        quality, _, donor = self._ranked[-1 - int(self._rng.integers(count))]
        return donor if quality > entry[0] else None

    def _exploit(self, trial_id: str, donor_id: str) -> Exploit:
        donor, member = self._members[donor_id], self._members[trial_id]
        after = self._explored(donor.configuration)
        perturbation = Perturbation(donor.step, trial_id, donor_id, donor.configuration, after)
        self._lineages[trial_id] = (*self.lineage(donor_id), perturbation)
        self._unrank(trial_id)
        if (
            self._spec.time_attr != "training_iteration"
        ):  # which counts the trial's own reports, whoever it continues from
            member.step = donor.step
        member.configuration, member.milestone = after, self._spec.milestone(member.step)
        return Exploit(donor_id, copy.deepcopy(after))

    # --- explore ---

    def _explored(self, base: Configuration) -> Configuration:
        """The first of the `_proposals` that the constraints allow; ``base`` where none is found."""
        proposals = itertools.islice(self._proposals(base), _TRIES)
        return next((proposal for proposal in proposals if self._space.allows(proposal)), copy.deepcopy(base))

    @abstractmethod
    def _proposals(self, base: Configuration) -> Iterator[Configuration]:
        """Points of the space, constraints aside, made from ``base``; the most promising first."""

    def _inherited(self, parameter: Parameter, base: Configuration) -> Any:
        """The value in ``base``; drawn from the domain where the parameter was inactive there."""
        try:
            return at(base, parameter.path)
        except KeyError:
            return parameter.domain.sample(self._rng)

    def _moved(self, domain: Domain, value: Any) -> Any:
        """Another category: drawn anew, or the one written before or after ``value``."""
        assert isinstance(domain, Choice)
        if self._rng.random() < self._spec.resample_probability:
            return domain.sample(self._rng)
        index = index_of(domain.categories, value) + int(self._rng.choice((-1, 1)))
        return domain.categories[min(max(index, 0), len(domain.categories) - 1)]

    # --- time slices ---

    def _tick(self) -> int:
        self._order += 1
        return self._order

    def _somebody_is_behind(self, step: int) -> bool:
        self._forget_ended()
        return self._started < self._size or bool(self._queue and self._queue[0][0] < step)

    def _forget_ended(self) -> None:
        while self._queue and self._queue[0][2] not in self._paused:
            heapq.heappop(self._queue)
