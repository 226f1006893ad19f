"""Documents of the commands that speak with a cluster."""

from __future__ import annotations

from typing import Literal

from tuner.documents.document import Document

JobStatus = Literal["pending", "running", "stopped", "succeeded", "failed"]
"""As Ray names it, in small letters."""


class SubmittedJob(Document):
    """A search that became a job."""

    job: str
    """Its name, which is that of its run too."""
    storage: str
    """The storage of its run folder."""
    files: int
    """Number of files of code that were sent."""


class TravellingFiles(Document):
    """What ``submit --dry-run`` would send."""

    files: dict[str, int]
    """Bytes by path."""
    left_out: dict[str, str]
    """Files that do not travel, each with the reason."""


class JobRow(Document):
    """A search of a cluster."""

    job: str
    """Its name."""
    status: JobStatus
    """How it stands."""
    started: str
    """Local time: ``2026-01-01 10:00``."""
    by: str
    """Who submitted it."""
    storage: str
    """The storage of its run folder."""


class JobLog(Document):
    """The output of a job."""

    job: str
    """Its name."""
    log: str
    """What it printed."""
    failed: bool
    """With ``--follow``: whether it failed. False without it."""


class FetchedRun(Document):
    """A run folder that was copied here."""

    job: str
    """Name of the job."""
    folder: str
    """The copy."""


class StoppedJob(Document):
    """A job that was stopped."""

    job: str
    """Its name."""
    was_running: bool
    """Whether there was something to stop."""
