"""What the service over HTTP and the queue of searches know of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tuner.live import queue_source

SERVICE = ".service"
"""The folder of the service's own files, in the storage."""

USER = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"
"""Pattern of a user's name: it comes in file names, in metrics and in terminals."""

Unit = Literal["GPU", "CPU"]
"""What users share."""

ENDED = ("succeeded", "failed", "stopped")
"""States of a search that no longer runs or waits."""


@dataclass(frozen=True)
class Submission:
    """A search that a user asks for. Its experiment is valid, and its name can be that of a folder."""

    user: str
    name: str
    """Of the search, of its run folder and of its job."""
    request: str
    """An id that the client made up: the same request of a user, sent again, is the same search."""
    file: str | None = None
    """The experiment, relative to the root of the code, or the name of a shipped one; None if `experiment` is given."""
    experiment: str | None = None
    """Its text, in YAML; None if `file` is given."""
    overrides: tuple[str, ...] = ()
    """As of ``--set``."""
    code: str | None = None
    """The sha256 of a bundle of `tuner.service.code_store`; None if the cluster has all code that it needs."""
    priority: int = 0
    """Searches with a higher one come first."""
    per_trial: Mapping[str, float] = field(default_factory=dict)
    """What all workers of one trial hold, by Ray's names of resources."""
    trials: int | None = None
    """How many it runs; None if other limits end it."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of Python and packages where it was submitted; empty if that is not known."""


class Entry(queue_source.Entry, Protocol):
    """A search of a team, as the service shows it."""

    @property
    def request(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def reason(self) -> str:
        """Why it waits, who stopped or resumed it, or how it ended; empty if there is nothing to tell."""


class Queue(Protocol):
    """The searches of a team. Several threads call it; only `step` may take long."""

    def entries(self) -> Sequence[Entry]:
        """All searches that it knows; the same object as before only if nothing of them has changed."""

    def status(self) -> queue_source.Status:
        """How the cluster and its users stand."""

    def entry(self, name: str) -> Entry:
        """One search. Raises InputError if there is none."""

    def check(self, submission: Submission) -> str:
        """Why the search can never run; empty if it can."""

    def submit(self, submission: Submission) -> Entry:
        """Keeps the search: when it returns, a killed process loses nothing.

        Returns the entry that there is for the same request of the same user. Raises InputError if the name is taken,
        and OSError if the storage fails.
        """

    def stop(self, name: str, by: str) -> bool:
        """Ends a search for a user, or takes it out of the queue; whether there was something to stop."""

    def resume(self, name: str, by: str) -> Entry:
        """Queues an ended search again for a user. Raises InputError if there is nothing to resume."""

    def log(self, name: str) -> str:
        """The output of its job until now; empty before it begins."""

    def is_admin(self, user: str) -> bool:
        """Whether the user may control the searches of all others."""

    def step(self) -> Mapping[str, str]:
        """Looks at the cluster, and starts, limits and ends searches.

        Returns by name why something could not be done for single searches. Raises OSError and EnvironmentFailure.
        """
