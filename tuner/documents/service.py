"""Documents of a service: of its commands, and of its answers over HTTP."""

from __future__ import annotations

from tuner.documents.document import Document
from tuner.documents.errors import FailureProblem


class MadeToken(Document):
    """A new token."""

    user: str
    """Whose it is."""
    token: str
    """The token; nothing else shows it."""


class ListedToken(Document):
    """A token, without itself."""

    id: str
    """Names it for ``revoke --id``."""
    user: str
    """Whose it is."""
    created: float
    """Unix time, in seconds."""
    expires: float | None
    """Unix time, in seconds; null: never."""


class RevokedTokens(Document):
    """Tokens that no longer work."""

    user: str
    """Whose they were."""
    revoked: int
    """How many."""


class Me(Document):
    """Whose token it is that asks."""

    user: str
    """The name."""
    admin: bool
    """Whether this user may control the searches of all others."""
    expires: float | None
    """When the token expires, in unix time; null: never."""


class TeamSearch(Document):
    """A search of a service."""

    name: str
    """Its name, which is that of its run folder too."""
    user: str
    """Who submitted it."""
    state: str
    """``queued`` or ``running``, or what else it does; at its end ``succeeded``, ``failed`` or ``stopped``."""
    position: int | None
    """Its place in the queue, from 1; null if it does not wait."""
    submitted: float
    """Unix time, in seconds."""
    priority: int
    """Searches with a higher one come first."""
    reason: str
    """Why it waits, who stopped or resumed it, or how it ended; empty if there is nothing to tell."""


class StoppedSearch(Document):
    """A search that was to be stopped."""

    name: str
    """Its name."""
    was_running: bool
    """Whether there was something to stop."""


class SearchLog(Document):
    """Output of a search's job."""

    name: str
    """The search."""
    log: str
    """What the job printed after the offset that was asked for."""
    offset: int
    """Characters until its end: ask with it for what comes later."""
    state: str
    """State of the search when the output was read."""


class CommandAnswer(Document):
    """What became of a command to a running search."""

    id: str
    """Of the command."""
    done: bool | None
    """Whether the search carried it out; null if it has not answered."""
    reason: str
    """Why the search refused it; empty if it did not."""
    trials: list[str]
    """Ids of trials that it made or touched."""


class UserUse(Document):
    """What a user has of the cluster."""

    gpus: float
    """That the user's trials hold now."""
    owed: float
    """GPU seconds that the user should have had and did not get; negative if there were more."""
    hours: float
    """GPU hours of this week."""


class ClusterStatus(Document):
    """How the cluster of a service stands."""

    unit: str
    """``GPU``; ``CPU`` on a cluster without GPUs: all numbers of GPUs are then CPUs."""
    gpus: float
    """Of the cluster now."""
    reserved: float
    """Of them, kept for interactive work."""
    in_use: float
    """By trials."""
    problem: str
    """Why nothing moves; empty if all is well."""
    users: dict[str, UserUse]
    """By name of the user."""


class KeptCode(Document):
    """Code that the service has."""

    sha256: str
    """Of the bundle."""


class ErrorText(Document):
    """Why a request failed."""

    message: str
    """A line for each problem."""
    exit_status: int
    """With which a command ends for the same reason."""
    problems: list[FailureProblem]
    """Problems of the experiment, each with its place; empty if it is not about one."""


class ErrorAnswer(Document):
    """The body of every answer with a status of 400 and more."""

    error: ErrorText
    """What is wrong."""
