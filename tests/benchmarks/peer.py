"""The contracts that a search of another library fulfils as one object; `peers` names them all."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar, Protocol

from pydantic import ConfigDict

from tuner.schedulers.base import Scheduler, SchedulerSpec
from tuner.searchers.base import Searcher, SearchSpec
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space

REDUCTION_FACTOR = 3
"""The default of Syne Tune's schedulers, of Optuna's Hyperband pruner, of SMAC and of DEHB."""


class Peer(Searcher, Scheduler, ABC):
    """A searcher and a scheduler in one, as other libraries have them; values are to be made large."""


class PeerSearch(SearchSpec):
    """Hands out a peer that exists."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    peer: Peer

    def build(self, task: SearchProblem) -> Searcher:
        return self.peer


class PeerScheduler(SchedulerSpec):
    """Hands out a peer that exists."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    peer: Peer

    @property
    def pauses(self) -> bool:
        return True  # some do

    def build(self, task: SearchProblem) -> Scheduler:
        return self.peer


class PeerOptions(Protocol):
    """Names a peer: a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __call__(self, space: Space, max_t: int, seed: int) -> Peer:
        """The peer; at ``max_t`` a trial is complete."""
