"""Libraries that ask for a configuration at a budget: here a trial that pauses there, and is resumed at a higher one.

A resumed trial continues at no cost, which favours those that promote.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peer import Peer

from tuner.schedulers.base import Decision, Resume
from tuner.spec.configuration import Configuration
from tuner.spec.space import Space
from tuner.spec.space.domains import Choice, Domain
from tuner.spec.space.ranges import Float, Integer

if TYPE_CHECKING:
    from ConfigSpace import ConfigurationSpace
    from ConfigSpace.hyperparameters import Hyperparameter


@dataclass(frozen=True)
class Job:
    """What a library asks for."""

    key: Hashable
    """The same for the same configuration at another budget."""
    values: Mapping[str, Any]
    """As `configuration_space` has them."""
    budget: float
    asked: Any
    """The library's own object, which it wants back with the value."""

    @property
    def until(self) -> int:
        """The first step at which it is answered; budgets are powers, which miss whole numbers by a rounding."""
        return math.ceil(self.budget - 1e-6)


class BudgetedPeer(Peer):
    """Runs the jobs of a library."""

    def __init__(self, space: Space, max_t: int) -> None:
        self._space = space
        self._max_t = max_t
        self._next: Job | None = None
        self._running: dict[str, Job] = {}
        self._paused: dict[Hashable, tuple[str, int]] = {}
        """Trial and step by the key of their jobs."""

    @abstractmethod
    def ask(self) -> Job | None:
        """The next job; None if the library has no more."""

    @abstractmethod
    def tell(self, job: Job, value: float) -> None:
        """The answer to a job."""

    def next_action(self, more: bool) -> Resume | None:
        job = self._ahead()
        if job is None or job.key not in self._paused:
            return None
        trial_id, step = self._paused[job.key]
        if step >= job.until:  # asked for once more
            return None
        del self._paused[job.key]
        self._start(trial_id, job)
        return Resume(trial_id)

    def suggest(self, trial_id: str) -> Configuration | None:
        job = self._ahead()
        if job is None:
            return None
        self._start(trial_id, job)
        return self._space.build(lambda parameter: _inside(parameter.domain, job.values[parameter.name]))

    def _ahead(self) -> Job | None:
        """The next job, which waits until a trial starts or is resumed for it."""
        if self._next is None:
            self._next = self.ask()
        return self._next

    def _start(self, trial_id: str, job: Job) -> None:
        self._next = None
        self._running[trial_id] = job

    def report(self, trial_id: str, step: int, value: float) -> Decision:
        job = self._running[trial_id]
        if step < job.until:
            return Decision.CONTINUE
        del self._running[trial_id]
        self.tell(job, value)
        if step >= self._max_t:
            return Decision.STOP
        self._paused[job.key] = trial_id, step
        return Decision.PAUSE


def configuration_space(space: Space, seed: int) -> ConfigurationSpace:
    """``space`` for SMAC and DEHB; categories are their indices, as ConfigSpace's own types are not always ours."""
    from ConfigSpace import ConfigurationSpace

    found = ConfigurationSpace(seed=seed)
    found.add([_hyperparameter(p.name, p.domain) for p in space.free])
    return found


def _hyperparameter(name: str, domain: Domain) -> Hyperparameter:
    import ConfigSpace

    if isinstance(domain, Float) and domain.q is None:
        return ConfigSpace.UniformFloatHyperparameter(name, domain.lower, domain.upper, log=domain.log)
    if isinstance(domain, Integer) and domain.q is None:
        return ConfigSpace.UniformIntegerHyperparameter(name, domain.lower, domain.upper - 1, log=domain.log)
    if isinstance(domain, Choice):
        return ConfigSpace.CategoricalHyperparameter(name, list(range(len(domain.categories))))
    raise LookupError(f"no translation of {domain} for ConfigSpace")


def _inside(domain: Domain, value: Any) -> Any:
    if isinstance(domain, Choice):
        return domain.categories[int(value)]
    if isinstance(domain, Integer):
        return int(value)
    assert isinstance(domain, Float), domain
    return min(max(float(value), domain.lower), domain.upper)  # exp(log(x)) may miss x by one rounding
