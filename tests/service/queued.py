"""A queue of a team's searches, with a cluster in memory and a clock that a test turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tests.service.fake import FakeCluster
from tuner.service.interface import Submission
from tuner.service.queue import SearchQueue
from tuner.service.team import Team
from tuner.storage.folder import RunFolder

MONDAY = 4 * 86_400.0
"""The first Monday of 1970, 0:00 UTC."""


class Clock:
    now = MONDAY

    def __call__(self) -> float:
        return self.now


class Service:
    """A queue, its cluster and its clock."""

    def __init__(self, storage: RunFolder, cluster: FakeCluster, team: Team) -> None:
        self.storage, self.cluster, self.team, self.clock = storage, cluster, team, Clock()

    def __enter__(self) -> Service:
        self._context = SearchQueue.open(self.storage, self.cluster, self.team, self.clock)
        self.queue = self._context.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """The cluster lives on."""
        self._context.__exit__(None, None, None)

    def come_back(self) -> None:
        """As after a kill: only the storage and the cluster are left."""
        self.__exit__()
        self.__enter__()

    def submit(self, user: str, name: str, **changes: object) -> None:
        self.queue.submit(submission(user, name, **changes))
        self.clock.now += 1

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        for _ in range(round(seconds / 10)):
            assert self.queue.step() == {}, "no search has a fault"
            self.cluster.advance(10)
            self.clock.now += 10
            if until():
                return

    def running(self) -> dict[str, int]:
        return {name: len(one.ages) for name, one in self.cluster.searches.items() if one.state == "running"}

    def states(self) -> dict[str, str]:
        return {entry.name: entry.state for entry in self.queue.entries()}


def submission(user: str, name: str, **changes: object) -> Submission:
    given = Submission(user, name, request=f"r-{name}", file="quickstart", per_trial={"GPU": 1.0}, trials=8)
    return dataclasses.replace(given, **changes)
