"""The state of a search in the queue: how it changes with its job, and with the trials that it may run."""

from __future__ import annotations

from dataclasses import replace

from tuner.service.cluster import JobView
from tuner.service.jobs import why_failed
from tuner.service.records import Record


def with_job(record: Record, job: JobView | None, log: str) -> Record:
    """The record after a look at the cluster.

    Args:
        record: Of a search that has, or may have, a job.
        job: Its job; None if the cluster knows none.
        log: The output of a job that has failed.

    Returns:
        The record as it is to be kept, or the same one.
    """
    if job is None:
        return _without_job(record)
    if not job.has_ended:
        return replace(record, state="running") if record.state == "starting" else record
    if job.state == "succeeded":
        return replace(record, state="succeeded", reason="")
    if record.state == "stopping":
        return replace(record, state="stopped")  # its reason names the user
    if job.state == "stopped":
        return replace(record, state="stopped", reason="stopped")
    return replace(record, state="failed", reason=why_failed(log, job.message))


def _without_job(record: Record) -> Record:
    match record.state:
        case "stopping":
            return replace(record, state="stopped")
        case "starting":
            return record
    # The cluster has lost its head, and forgotten the job. The next one continues it, also if it has come to its end.
    return replace(record, state="starting", attempt=1, resumes=False)


def with_limit(record: Record, limit: int | None) -> Record:
    """The record of a search that may run ``limit`` trials; None if nothing was decided."""
    if record.state == "queued" and limit:
        return replace(record, state="starting")
    if record.state == "running" and limit == 0:
        return replace(record, state="paused")
    if record.state == "paused" and limit:
        return replace(record, state="running")
    return record
