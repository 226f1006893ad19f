"""Searches that run on a cluster: submitted, listed, followed, stopped, fetched. A job has the name of its run."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import posixpath
import shlex
import socket
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner import examples
from tuner.actions.run import checked_name, run_name
from tuner.errors import EnvironmentFailure, InputError, NoUsableResult, TunerError, did_you_mean
from tuner.experiment.reader import Experiment, load_experiment, shipped_experiment
from tuner.jobs.cluster_address import ClusterFile
from tuner.jobs.code_bundle import Code, code_of, copy_files
from tuner.jobs.driver import READY, versions
from tuner.jobs.record import Job, Submitter, list_code
from tuner.redaction import redacted
from tuner.storage.folder import RunFolder, without_password
from tuner.trainable.trainable import load_trainable

if TYPE_CHECKING:
    from ray.job_submission import JobDetails, JobSubmissionClient

START_S = 120.0
"""How long the driver may take to say whether it can run: the code is unpacked, and Python starts."""

AGENT_S = 30.0
"""How long a cluster that has just come up may need until it takes jobs."""

STORAGE_KEY, _BY = "tuner_storage", "tuner_submitter"
"""Keys of a job's metadata."""

_SSH_FAILED = 255
"""The exit status of rsync where its ssh does not reach the host."""

_ATTEMPT = "~"
"""Comes in no job's name."""


@dataclass(frozen=True)
class Submission:
    """A search that is to run on a cluster."""

    file: str | None
    """The experiment, below the project; None: a run that exists continues."""
    overrides: tuple[str, ...]
    name: str
    storage: str
    project: Path
    """Whose code travels."""
    code: Code
    attempt: int = 1
    """The number of this job among the jobs of its name, from 1."""

    @property
    def job(self) -> Job:
        """What the cluster gets to know."""
        sets = [word for text in self.overrides for word in ("--set", text)]
        what = "--resume" if self.file is None else self.file
        words = ["-m", "tuner.jobs.driver", what, "--storage", self.storage, "--name", self.name, *sets]
        who = f"{getpass.getuser()}@{socket.gethostname()}"
        return Job(self.name, self.storage, shlex.join(["python", *words]), Submitter(who, versions()))


def prepare_submission(
    file: str,
    overrides: Sequence[str],
    name: str | None,
    storage: str | None,
    exclude: Sequence[str] = (),
    cluster: ClusterFile | None = None,
    include: Sequence[str] = (),
) -> Submission:
    """Checks what can be checked here. ``exclude``, ``include``: as of `code_of`. Raises InputError."""
    project = Path.cwd().resolve()
    overrides = list(overrides)
    experiment = load_experiment(file, overrides)
    storage = _storage(storage, cluster)
    if storage is None:
        raise InputError("--storage: where the cluster keeps its runs: a folder that all nodes see, or s3://…, gs://…")
    overrides += experiment.spec.tracking.overrides_for(cluster.mlflow if cluster else None)
    code = code_of(project, exclude, include)
    file = checked_file(file, experiment, project, code)
    run = run_name(name, experiment.spec.name)
    return Submission(file, tuple(overrides), run, storage, project, code)


def checked_file(file: str, experiment: Experiment, project: Path, code: Code) -> str:
    """The experiment's file as the cluster finds it: below ``project``, or the name of a shipped one.

    Raises InputError if it or its trainable does not belong to the code that travels.
    """
    path = (shipped_experiment(file) or Path(file)).resolve()
    if not path.is_relative_to(examples.FOLDER) or path.is_relative_to(project):  # else the cluster's tuner has it
        _check_travels(path, "FILE", project, code)
        file = os.path.relpath(path, project)
    source = Path(load_trainable(experiment.spec.trainable, experiment.roots).module.__file__ or "").resolve()
    if source.is_relative_to(project) and "site-packages" not in source.parts:  # else the cluster must have it
        _check_travels(source, f"trainable {experiment.spec.trainable}", project, code)
    return file


def _storage(given: str | None, cluster: ClusterFile | None) -> str | None:
    if given is not None and "://" not in given and not given.startswith("/"):
        raise InputError(f"--storage {given}: must be an absolute path on the cluster, or a URI")
    found = given or (cluster.storage if cluster else None)
    return None if found is None else without_password(found)


def prepare_resume(
    client: JobSubmissionClient,
    name: str,
    storage: str | None = None,
    exclude: Sequence[str] = (),
    cluster: ClusterFile | None = None,
    include: Sequence[str] = (),
) -> Submission:
    """To continue a job that ended before its search did.

    ``storage``: that of the run; by default the job's, or that of ``cluster`` where it does not know the job. Raises
    InputError where the job runs, where its search came to its end, and where nobody knows where its run is.
    """
    wanted = _storage(storage, cluster)
    job, attempt = _searches(client).get(checked_name(name, "JOB")), 1
    if job is not None:
        status = job.status.value.lower()
        if status == "succeeded":
            raise InputError(f"job {name!r}: nothing to resume: its search came to its end")
        if not job.status.is_terminal():
            raise InputError(f"job {name!r} has not ended (it is {status}): follow it with logs, or stop it first")
        wanted = storage or job.metadata[STORAGE_KEY]
        attempt = int(job.submission_id.partition(_ATTEMPT)[2] or 1) + 1
    if wanted is None:
        raise InputError(f"this cluster knows no job {name!r}: say with --storage where its run is")
    project = Path.cwd().resolve()
    return Submission(None, (), name, wanted, project, code_of(project, exclude, include), attempt)


def _check_travels(file: Path, what: str, project: Path, code: Code) -> None:
    if not file.is_relative_to(project):
        raise InputError(f"{what}: {file} is outside of {project}, whose code travels: start from the project's root")
    if file.relative_to(project) not in code.files:
        why = code.left_out.get(str(file.relative_to(project)), ".gitignore, .tunerignore or --exclude names it")
        raise InputError(f"{what}: {file.relative_to(project)} does not travel: {why}")


def submit(client: JobSubmissionClient, submission: Submission, say: Callable[[str], None]) -> None:
    """Sends the code, starts the job, and returns when its driver has seen that it can run.

    Raises InputError if the cluster has another Ray or Python, or the name is taken; and as the driver does.
    """
    _check_ray(client)
    if submission.code.remark:
        say(submission.code.remark)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tuner-code-") as folder:
        copy_files(submission.project, submission.code.files, Path(folder))
        list_code(Path(folder), [str(file) for file in submission.code.files])
        if not submit_job(client, submission.job, folder, submission.attempt):
            raise InputError(f"--name {submission.name!r} is taken on this cluster; choose another name")
    say(f"{len(submission.code.files)} files sent, job {submission.name} made in {time.monotonic() - begun:.1f}s")
    known_as = job_id(submission.name, submission.attempt)
    while READY not in client.get_job_logs(known_as):
        info = client.get_job_info(known_as)
        if info.status.is_terminal():
            raise _why_failed(client.get_job_logs(known_as), info.message, info.driver_exit_code)
        if time.monotonic() - begun > START_S:
            say(f"the job has not started within {START_S:.0f} s: {info.message}")
            return
        time.sleep(0.5)


def _why_failed(logs: str, message: str, status: int | None) -> TunerError:
    """Why a job ended before its search began: what its driver said, with the status that it left with."""
    if "No module named 'tuner'" in logs:
        remedy = "install there what you have here, as the files in cluster/ do"
        return EnvironmentFailure(f"the cluster's Python has no tuner: {remedy}")
    lines = [line.removeprefix("error: ") for line in logs.splitlines() if line.startswith("error: ")]
    if not lines:
        last = (logs.strip() or message or "").splitlines()[-1:]
        return EnvironmentFailure(f"the job failed before its search began: {' '.join(last) or 'it said nothing'}")
    kinds = {kind.exit_status: kind for kind in (InputError, NoUsableResult)}
    return kinds.get(status or 0, EnvironmentFailure)(lines[-1])


def job_id(name: str, attempt: int) -> str:
    """Of a job, as Ray knows it: each attempt has its own.

    One that was deleted cannot be given again at once: Ray 2.60 looks at a job once a second, so that it would take the
    end of the first for that of the second.
    """
    return name if attempt == 1 else f"{name}{_ATTEMPT}{attempt}"


def submit_job(client: JobSubmissionClient, job: Job, code: str, attempt: int = 1) -> bool:
    """Has the cluster run ``job`` with the code in the folder ``code``; False if it knows one of this name.

    Raises EnvironmentFailure if it refuses it.
    """
    with _packed(Path(code)) as package:
        return _submit(client, job, package, attempt)


def _submit(client: JobSubmissionClient, job: Job, package: Path, attempt: int) -> bool:
    """As `submit_job`, with the code as an archive."""
    give_up = time.monotonic() + AGENT_S
    while True:
        try:
            client.submit_job(
                entrypoint=job.command,
                submission_id=job_id(job.name, attempt),
                runtime_env={"working_dir": str(package), "env_vars": job.environment},
                metadata={STORAGE_KEY: job.storage, _BY: job.submitter.who},
            )
        except RuntimeError as error:
            if "already exists" in str(error):
                return False
            if "No available agent" not in str(error) or time.monotonic() > give_up:
                raise EnvironmentFailure(f"the cluster refuses the job: {' '.join(str(error).split())}") from None
            time.sleep(1)  # the head has only just started
        else:
            return True


@contextlib.contextmanager
def _packed(code: Path) -> Iterator[Path]:
    """Within: an archive of all files below ``code``. Of a folder, Ray leaves out what .gitignore in it names.

    The same files always make the same bytes, by which Ray knows what it has already.
    """
    with tempfile.TemporaryDirectory(prefix="tuner-code-") as folder:
        package = Path(folder) / "code.zip"
        with zipfile.ZipFile(package, "w") as archive:
            for file in sorted(path for path in code.rglob("*") if path.is_file()):
                info = zipfile.ZipInfo(str(file.relative_to(code)))
                info.external_attr = (file.stat().st_mode & 0xFFFF) << 16
                archive.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)
        yield package


def _check_ray(client: JobSubmissionClient) -> None:
    import ray

    there = client._server_ray_version
    if there != ray.__version__:
        raise InputError(f"the cluster has Ray {there}, and here is {ray.__version__}: install the same on both")


def _searches(client: JobSubmissionClient) -> dict[str, JobDetails]:
    """By name the searches that this cluster was given, the latest first; of each the last attempt."""
    found = [job for job in client.list_jobs() if job.submission_id and STORAGE_KEY in (job.metadata or {})]
    latest: dict[str, JobDetails] = {}
    for job in sorted(found, key=lambda job: -(job.start_time or 0)):
        latest.setdefault(job.submission_id.partition(_ATTEMPT)[0], job)
    return latest


def jobs(client: JobSubmissionClient) -> list[dict[str, Any]]:
    """The searches that this cluster was given, the latest first."""
    return [
        {
            "job": name,
            "status": job.status.value.lower(),
            "started": time.strftime("%Y-%m-%d %H:%M", time.localtime((job.start_time or 0) / 1000)),
            "by": job.metadata.get(_BY, ""),
            "storage": redacted(job.metadata[STORAGE_KEY], whole=True),
        }
        for name, job in _searches(client).items()
    ]


def _known(client: JobSubmissionClient, name: str) -> JobDetails:
    found = _searches(client)
    if name not in found:
        raise InputError(f"no job {name!r} on this cluster; {did_you_mean(name, [*found])}")
    return found[name]


def logs(client: JobSubmissionClient, name: str, follow: bool, show: Callable[[str], None]) -> int:
    """Shows what the job said, and with ``follow`` what it says until its end; then 1 where it failed, else 0."""
    job = _known(client, name).submission_id
    if not follow:
        show(client.get_job_logs(job))
        return 0

    async def tail() -> None:
        async for lines in client.tail_job_logs(job):
            show(lines)

    asyncio.run(tail())
    while not (status := client.get_job_status(job)).is_terminal():
        time.sleep(0.5)
    return int(status.value != "SUCCEEDED")


def stop(client: JobSubmissionClient, name: str) -> bool:
    """Stops the job; whether it was running."""
    return bool(client.stop_job(_known(client, name).submission_id))


def fetch(client: JobSubmissionClient, name: str, target: Path, cluster: ClusterFile | None) -> Path:
    """Copies the job's run folder below ``target``. Raises EnvironmentFailure if it cannot be reached from here."""
    storage = _known(client, name).metadata[STORAGE_KEY]
    source, here = RunFolder.at(storage) / name, RunFolder.at(target / name)
    if "://" in storage or source.exists():
        if not source.exists():
            raise EnvironmentFailure(f"{source.location}: there is nothing (yet)")
        source.copy_to(here)
    elif cluster is not None:
        (target / name).mkdir(parents=True, exist_ok=True)
        head = cluster.head_address()
        at = f"{cluster.user}@{head}:{posixpath.join(storage, name)}/"
        files = ["-rt", "--no-links", "--no-devices", "--no-specials"]  # nothing that leads elsewhere on this machine
        command = ["rsync", *files, "-e", shlex.join(cluster.ssh()), "--", at, f"{target / name}/"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == _SSH_FAILED:
            raise cluster.refused(head, done.stderr)
        if done.returncode != 0:
            raise EnvironmentFailure(f"rsync of {at}: {' '.join(done.stderr.split())}")
    else:
        raise EnvironmentFailure(
            f"{source.location} is on the cluster, and cannot be read here: give --cluster FILE, which names its head"
        )
    return target / name
