"""The jobs of a queue's searches: their commands, their limits, and why they failed."""

from __future__ import annotations

import shlex

from tuner.jobs.driver import versions
from tuner.jobs.record import Job, Submitter
from tuner.runs.commands import discard, send, waiting_commands
from tuner.runs.loading import run_exists
from tuner.service.records import Record
from tuner.storage.folder import RunFolder

BY = "the queue"
"""Who sends the limits, in the journals of searches."""


def job_of(record: Record, storage: RunFolder, file: str) -> Job:
    """The job of a search, which runs in the folder of its code.

    A job that was forgotten by a cluster that lost its head continues, as `tuner.jobs.recover` would continue it.
    """
    submission = record.submission
    sets = [word for text in submission.overrides for word in ("--set", text)]
    what = "--resume" if record.resumes else file
    words = ["-m", "tuner.jobs.driver", what, "--storage", storage.location, "--name", record.name, *sets]
    submitter = Submitter(record.user, submission.versions or versions())
    job = Job(record.name, storage.location, "", submitter)
    if not record.resumes and (job.is_kept() or run_exists(storage / record.name)):
        words += ["--again", "1"]
    return Job(record.name, storage.location, shlex.join(["python", *words]), submitter)


def forget_job(record: Record, storage: RunFolder) -> None:
    """Deletes what `tuner jobs recover` would start again: whether an ended search continues is the queue's to decide.

    Raises OSError.
    """
    Job(record.name, storage.location, "", Submitter()).delete()


def send_limit(run: RunFolder, trials: int | None) -> None:
    """Leaves word for a search that so many trials may run at once; None: as many as the machines take.

    Earlier word that it has not read is taken back.

    Raises OSError.
    """
    waiting = [command for command in waiting_commands(run)[0] if (command.do, command.by) == ("slots", BY)]
    if waiting and waiting[-1].arguments == {"trials": trials}:
        return
    for command in waiting:
        discard(run, command)
    send(run, "slots", BY, {"trials": trials})


def why_failed(log: str, message: str) -> str:
    """Why a job ended, in one line: the last error in its output, or what the cluster tells."""
    errors = [line.removeprefix("error: ") for line in log.splitlines() if line.startswith("error: ")]
    last = (log.strip() or message or "its job ended without a word").splitlines()[-1]
    return (errors[-1] if errors else last)[:1000]
