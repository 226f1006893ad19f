"""A queue in memory, which starts nothing: what the service over HTTP needs of one."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from tuner.errors import InputError
from tuner.service.accounts import Use
from tuner.service.interface import ENDED, Submission
from tuner.service.queue import QueueStatus
from tuner.service.records import Record


class PlainQueue:
    """See above. The user root is an admin, and bob may run nothing with more than 4 GPUs."""

    def __init__(self) -> None:
        self.found: dict[str, Record] = {}
        self.logs: dict[str, str] = {}
        self.broken: Exception | None = None
        self.steps = 0
        self.problem = ""
        self.faults: dict[str, str] = {}

    def entries(self) -> list[Record]:
        return list(self.found.values())

    def status(self) -> QueueStatus:
        users = {"ada": Use(gpus=1.0, owed=0.0, hours=2.0)}
        return QueueStatus(gpus=8.0, in_use=1.0, problem=self.problem, users=users)

    def entry(self, name: str) -> Record:
        if name not in self.found:
            raise InputError(f"no search {name!r}")
        return self.found[name]

    def check(self, submission: Submission) -> str:
        many = submission.user == "bob" and submission.per_trial.get("GPU", 0) > 4
        return "a trial takes more GPUs than bob may use at once" if many else ""

    def submit(self, submission: Submission) -> Record:
        if self.broken:
            raise self.broken
        return self.found.setdefault(
            submission.name, Record(submission, time.time(), reason="waits for a share", position=1)
        )

    def set(self, name: str, **changes: Any) -> None:
        self.found[name] = replace(self.found[name], **changes)

    def stop(self, name: str, by: str) -> bool:
        if self.entry(name).state in ENDED:
            return False
        self.set(name, state="stopped", reason=f"stopped by {by}", position=None)
        return True

    def resume(self, name: str, by: str) -> Record:
        if self.entry(name).state not in ENDED:
            raise InputError(f"{name}: nothing to resume")
        self.set(name, state="queued", reason=f"resumed by {by}", position=1)
        return self.entry(name)

    def log(self, name: str) -> str:
        return self.logs.get(name, "")

    def is_admin(self, user: str) -> bool:
        return user == "root"

    def step(self) -> dict[str, str]:
        self.steps += 1
        if self.broken:
            raise self.broken
        return self.faults
