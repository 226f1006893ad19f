"""A cluster in memory for the queue: its jobs are searches that train, obey limits and take GPUs, in virtual time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.errors import EnvironmentFailure
from tuner.jobs.client import job_id
from tuner.jobs.record import Job
from tuner.runs.commands import discard, waiting_commands
from tuner.service.cluster import Capacity, JobState, JobView
from tuner.storage.folder import RunFolder
from tuner.storage.lock import locked


@dataclass
class FakeSearch:
    """A job."""

    run: RunFolder
    command: str
    trials: int = 8
    slots: int = 99
    gpus: float = 1.0
    state: JobState = "running"
    message: str = ""
    log: str = ""
    limit: int | None = None
    is_paused: bool = False
    begun: int = 0
    request: float = 0.0
    """GPUs of a worker, as it tells; 0: it does not tell."""
    workers: int = 1
    ages: list[float] = field(default_factory=list)
    """Seconds that each of its running trials has trained."""
    aside: list[float] = field(default_factory=list)

    process: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Holds the lock of the run while the search runs."""

    def begin(self) -> None:
        self.run.create()
        self.process.enter_context(locked(self.run))

    def read_commands(self) -> None:
        for command in waiting_commands(self.run)[0]:
            if command.do == "slots":
                self.limit = command.arguments["trials"]
            discard(self.run, command)

    def tell(self) -> None:
        states = ["running"] * len(self.ages) + ["aside"] * len(self.aside)
        told = {
            "time": 0.0,
            "slots": self.slots,
            "more": self.begun < self.trials,
            "request": {"GPU": self.request} if self.request else {},
            "workers": self.workers,
            "limit": self.limit,
            "paused": self.is_paused,
            "trials": {str(number): {"state": state, "since": 0.0} for number, state in enumerate(states)},
        }
        self.run.write("live.json", json.dumps(told).encode())


class FakeCluster:
    """Knows what the queue asks a cluster for, and trains."""

    def __init__(self, gpus: float = 8.0, trials: int = 8, trial_s: float = 600.0, checkpoint_s: float = 60.0) -> None:
        """``trials``: of each search. A trial takes ``trial_s``, with a checkpoint each ``checkpoint_s``."""
        self.gpus, self.trials, self.trial_s, self.checkpoint_s = gpus, trials, trial_s, checkpoint_s
        self.autoscaled: Capacity | None = None
        self.slots = 99
        self.searches: dict[str, FakeSearch] = {}
        self.is_gone = False
        self.lost_logs: set[str] = set()
        self.starts: list[str] = []

    def capacity(self) -> Capacity:
        self._answer()
        return Capacity(self.gpus, 64.0, self.autoscaled)

    def jobs(self) -> Mapping[str, JobView]:
        self._answer()
        return {name: JobView(one.state, one.message, one.run.parent.location) for name, one in self.searches.items()}

    def start(self, job: Job, code: Path, attempt: int) -> bool:
        self._answer()
        known_as = job_id(job.name, attempt)
        if known_as in self.searches:
            return False
        self.starts.append(known_as)
        run = RunFolder.at(job.storage) / job.name
        self.searches[known_as] = FakeSearch(run, job.command, self.trials, self.slots)
        self.searches[known_as].begin()
        return True

    def stop(self, job_id: str) -> None:
        self._answer()
        self.end(self.searches[job_id], "stopped")

    def log(self, job_id: str) -> str:
        self._answer()
        if job_id in self.lost_logs:
            raise EnvironmentFailure(f"the output of {job_id} is gone with its node")
        return self.searches[job_id].log

    def end(self, one: FakeSearch, state: JobState, log: str = "") -> None:
        """Its job ends so."""
        one.state, one.log = state, log
        one.process.close()

    def _answer(self) -> None:
        if self.is_gone:
            raise EnvironmentFailure("http://head:8265: nothing answers")

    @property
    def in_use(self) -> float:
        return sum(len(one.ages) * one.gpus for one in self.searches.values() if one.state == "running")

    def lose_head(self) -> None:
        """It comes back and knows no jobs; the trials are gone with it."""
        for one in self.searches.values():
            one.process.close()
        self.searches.clear()

    def advance(self, seconds: float, tick: float = 10.0) -> None:
        """Lets the searches train."""
        for _ in range(round(seconds / tick)):
            for one in self.searches.values():
                if one.state == "running":
                    self._train(one, tick)

    def _train(self, one: FakeSearch, tick: float) -> None:
        one.read_commands()
        kept = []
        for age in one.ages:
            now = age + tick
            most = 0 if one.is_paused else one.limit
            if now >= self.trial_s:
                continue
            is_above = most is not None and len(kept) >= most
            if is_above and int(now // self.checkpoint_s) > int(age // self.checkpoint_s):
                one.aside.append(now)
            else:
                kept.append(now)
        one.ages = kept
        while self._may_begin(one):
            if one.aside:
                one.ages.append(one.aside.pop(0))
            else:
                one.ages.append(0.0)
                one.begun += 1
        if one.begun == one.trials and not one.ages and not one.aside:
            self.end(one, "succeeded")
        one.tell()

    def _may_begin(self, one: FakeSearch) -> bool:
        has_more = bool(one.aside) or one.begun < one.trials
        most = one.slots if one.limit is None else min(one.slots, one.limit)
        below = not one.is_paused and len(one.ages) < most
        return has_more and below and self.in_use + one.gpus <= self.gpus
