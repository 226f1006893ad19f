"""A queue in memory, which starts nothing: what the service over HTTP needs of one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from tuner.errors import InputError
from tuner.service.interface import ENDED, Submission


@dataclass(frozen=True)
class PlainEntry:
    submission: Submission
    submitted: float
    state: str = "queued"
    position: int | None = 1
    reason: str = "waits for a share"

    @property
    def name(self) -> str:
        return self.submission.name

    @property
    def user(self) -> str:
        return self.submission.user

    @property
    def request(self) -> str:
        return self.submission.request

    @property
    def priority(self) -> int:
        return self.submission.priority


@dataclass(frozen=True)
class PlainUse:
    gpus: float = 1.0
    owed: float = 0.0
    hours: float = 2.0


@dataclass(frozen=True)
class PlainStatus:
    unit: str = "GPU"
    gpus: float = 8.0
    reserved: float = 0.0
    in_use: float = 1.0
    problem: str = ""
    users: dict[str, PlainUse] = field(default_factory=lambda: {"ada": PlainUse()})


class PlainQueue:
    """See above. The user root is an admin, and bob may run nothing with more than 4 GPUs."""

    def __init__(self) -> None:
        self.found: dict[str, PlainEntry] = {}
        self.logs: dict[str, str] = {}
        self.broken: Exception | None = None
        self.steps = 0

    def entries(self) -> list[PlainEntry]:
        return list(self.found.values())

    def status(self) -> PlainStatus:
        return PlainStatus()

    def entry(self, name: str) -> PlainEntry:
        if name not in self.found:
            raise InputError(f"no search {name!r}")
        return self.found[name]

    def check(self, submission: Submission) -> str:
        many = submission.user == "bob" and submission.per_trial.get("GPU", 0) > 4
        return "a trial takes more GPUs than bob may use at once" if many else ""

    def submit(self, submission: Submission) -> PlainEntry:
        if self.broken:
            raise self.broken
        return self.found.setdefault(submission.name, PlainEntry(submission, time.time()))

    def set(self, name: str, **changes: object) -> None:
        self.found[name] = replace(self.found[name], **changes)

    def stop(self, name: str) -> bool:
        ran = self.entry(name).state not in ENDED
        self.set(name, state="stopped", position=None)
        return ran

    def resume(self, name: str) -> PlainEntry:
        if self.entry(name).state not in ENDED:
            raise InputError(f"{name}: nothing to resume")
        self.set(name, state="queued", position=1)
        return self.entry(name)

    def log(self, name: str) -> str:
        return self.logs.get(name, "")

    def is_admin(self, user: str) -> bool:
        return user == "root"

    def step(self) -> None:
        self.steps += 1
        if self.broken:
            raise self.broken
