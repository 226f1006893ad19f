"""The part of a queue of searches that metrics read. `tuner.service.queue.Queue` has it; this package knows no
service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Entry(Protocol):
    """A search of a team."""

    @property
    def name(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def position(self) -> int | None:
        """Its place in the queue, from 1; None if it does not wait."""

    @property
    def submitted(self) -> float:
        """Unix time, in seconds."""


class UserStatus(Protocol):
    """What a user has of the cluster, and should have."""

    @property
    def gpus(self) -> float:
        """That his trials hold now."""

    @property
    def owed(self) -> float:
        """GPU seconds that he should have had and did not get; negative if he got more."""

    @property
    def hours(self) -> float:
        """GPU hours of this week."""


class Status(Protocol):
    """How the queue stands. All numbers of GPUs are CPUs if its `unit` is CPU."""

    @property
    def unit(self) -> str: ...
    @property
    def gpus(self) -> float:
        """Of the cluster now."""

    @property
    def reserved(self) -> float:
        """Of them, kept for interactive work."""

    @property
    def in_use(self) -> float:
        """By trials."""

    @property
    def problem(self) -> str:
        """Why nothing moves; empty if all is well."""

    @property
    def users(self) -> Mapping[str, UserStatus]: ...


class Queue(Protocol):
    """Whatever can tell how its queue stands."""

    def entries(self) -> Sequence[Entry]:
        """All searches that it knows."""

    def status(self) -> Status:
        """Now."""
