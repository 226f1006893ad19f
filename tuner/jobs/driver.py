"""The command of a job on the cluster: it runs the search, and resumes it if its process was killed.

    python -m tuner.jobs.driver --storage S --name N FILE|--resume [--set KEY=VALUE …] [--again NODES]

The environment variable ``TUNER_SUBMITTER`` says who submitted it (`tuner.jobs.record`). While it runs, its storage has
what `tuner.jobs.recover` needs to start it again when the cluster has lost its head.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from tuner import installed
from tuner.errors import EnvironmentFailure, InputError, Interrupted, TunerError
from tuner.jobs.record import Job, Submitter
from tuner.runs.journal import last_event
from tuner.runs.loading import load_latest, run_exists
from tuner.storage.folder import RunFolder
from tuner.storage.lock import STALE_AFTER_S, holder, locked

READY = "tuner: the cluster has what is needed"
PYTHON, MUST_AGREE, SHOULD_AGREE = "Python", ("ray",), ("torch", "torchvision", "optuna", "tuner")

CRASHED = 1
"""The exit status of a traceback, and of a process that Ray ends that misses the control store for a minute."""

MAX_DEATHS = 10
"""How often in a row a search is taken up that dies without a new event in its journal."""

LOCK_S = 2 * STALE_AFTER_S
"""How long the lock of a dead process may outlive it: in an object store, or with a host that NFS still waits for."""

NODES_S = 180.0
"""How long a cluster that comes up may need until it has all nodes."""


def versions() -> dict[str, str]:
    """Of this environment: what a trial's process and the one that submits should agree in."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {PYTHON: python, **installed.versions((*MUST_AGREE, *SHOULD_AGREE))}


def disagreements(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """What must agree and does not, and what should; ``here``: the cluster, ``there``: who submitted."""
    wrong = [name for name in there if here.get(name) != there[name]]

    def lines(names: Iterable[str]) -> list[str]:
        return [f"{name} {here.get(name, 'none')} here, {there[name]} there" for name in names]

    hard = [name for name in wrong if name in (PYTHON, *MUST_AGREE)]
    return lines(hard), lines(name for name in wrong if name not in hard)


def drive(
    file: str | None, overrides: Sequence[str], storage: str, name: str, interrupted: Callable[[], None] = lambda: None
) -> int:
    """Runs the search, and resumes it as often as its process is killed, and once if it crashes; its exit status.

    ``file``: the experiment; None for a run that exists. ``interrupted`` is called when a SIGINT comes.
    """
    folder = RunFolder.at(storage) / name
    last_size, deaths, crashes = -1, 0, 0
    while True:
        if folder.exists():
            with locked(folder, patience=LOCK_S):
                pass  # a dead process may seem to have it for a while
        common = ["--storage", storage, "--address", _address()]
        sets = [word for text in overrides for word in ("--set", text)]
        if run_exists(folder) and load_latest(folder).provenance.get("interrupted") is False:
            return 0  # killed after its end
        verb = (
            ["resume", name, "--project", ".", "--trust"]
            if run_exists(folder)
            else ["run", str(file), "--name", name, *sets]
        )
        status = _call([sys.executable, "-m", "tuner", *verb, *common], interrupted)
        if status in (-signal.SIGINT, -signal.SIGTERM):
            return Interrupted.exit_status
        if status == CRASHED and not crashes and not _ray_is_gone():
            crashes += 1
            print("NOTICE: the search crashed; it continues from its journal, once", file=sys.stderr)
            continue
        if status >= 0:
            return status
        event = last_event(folder)
        size = event["n"] if event else 0
        deaths = deaths + 1 if size == last_size else 1
        last_size = size
        if deaths > MAX_DEATHS:
            raise EnvironmentFailure(f"{folder.location}: killed {deaths} times without progress (signal {-status})")
        print(f"NOTICE: the search was killed (signal {-status}); it continues from its journal", file=sys.stderr)


def _address() -> str:
    return os.environ.get("RAY_ADDRESS", "auto")  # Ray sets it for a job


def _wait_until(condition: Callable[[], bool], patience: float) -> None:
    """Returns when ``condition`` holds, or ``patience`` seconds later."""
    deadline = time.monotonic() + patience
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.5)


def _wait_for_nodes(count: int) -> None:
    """Returns when the cluster has ``count`` nodes, or says that it has not."""
    from tuner.execution.session import cluster_at
    from tuner.execution.slots import nodes

    with cluster_at(_address()):
        _wait_until(lambda: len(nodes()) >= count, NODES_S)
        if (here := len(nodes())) < count:
            print(f"NOTICE: the cluster has {here} of {count} nodes after {NODES_S:.0f} s", file=sys.stderr)


def _call(command: list[str], interrupted: Callable[[], None]) -> int:
    """Runs it and passes signals on."""
    child = subprocess.Popen(command)

    def pass_on(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            interrupted()
        child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ray_is_gone() -> bool:
    """Whether nothing answers any more where this job's cluster was."""
    host, _, port = _address().rpartition(":")
    if not port.isdigit():
        return False
    with contextlib.suppress(OSError):
        socket.create_connection((host, int(port)), timeout=5).close()
        return False
    return True


def _begin(job: Job, resume: bool) -> None:
    """Checks that the search can run here, and keeps what it takes to start it again. Raises TunerError."""
    hard, soft = disagreements(versions(), job.submitter.versions)
    if hard:
        remedy = "install on the cluster what you have, or the other way round"
        raise InputError(f"the cluster and you differ: {'; '.join(hard)}; {remedy}")
    if soft:
        print(f"NOTICE: the cluster and you differ: {'; '.join(soft)}", file=sys.stderr)
    run = RunFolder.at(job.storage) / job.name
    if resume:
        _check_resumable(run)
    elif run_exists(run) or job.is_kept():
        raise InputError(f"--name {job.name!r} is taken: there is a run {run.location}; choose another name")
    job.keep(Path.cwd())


def _check_resumable(run: RunFolder) -> None:
    """Raises InputError if there is no such run, it came to its end, or a process works on it."""
    if not run_exists(run):
        raise InputError(f"there is no run {run.location} to resume")
    if load_latest(run).provenance.get("interrupted") is False:
        raise InputError(f"{run.location}: nothing to resume: the search came to its end")
    with locked(run, patience=LOCK_S):
        pass  # the record of a job that works on it must not be replaced


def main() -> None:
    """Searches as the command line says, and continues where the search is killed."""
    parser = argparse.ArgumentParser()
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("file", nargs="?")
    what.add_argument("--resume", action="store_true", help="the run that is in the storage")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--storage", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--again", type=int, metavar="NODES", help="begun on a cluster that lost its head")
    given = parser.parse_args()
    job = Job(
        given.name,
        given.storage,
        shlex.join(["python", "-m", "tuner.jobs.driver", *sys.argv[1:]]),
        Submitter.of_this_job(),
    )
    try:
        if given.again is None:
            _begin(job, given.resume)
    except TunerError as error:
        sys.exit(_failed(error))
    print(READY, file=sys.stderr, flush=True)
    sys.exit(_until_its_end(job, given))


def _until_its_end(job: Job, given: argparse.Namespace) -> int:
    """Drives the search; its record goes when it has ended or its user has stopped it. Its exit status."""
    try:
        if given.again is not None:
            _wait_for_nodes(given.again)
        status = drive(given.file, given.overrides, job.storage, job.name, job.delete)
    except KeyboardInterrupt:
        job.delete()
        return Interrupted.exit_status
    except TunerError as error:
        status = _failed(error)
    except OSError as error:
        status = _failed(EnvironmentFailure(f"{job.storage}: {' '.join(str(error).split())}"))
    was_cut_off = status in (CRASHED, EnvironmentFailure.exit_status)
    gone = was_cut_off and _ray_is_gone()
    if _is_over(status, job, gone):
        job.delete()
    if was_cut_off and not gone:
        again = f"python -m tuner resume {job.name} --cluster FILE"
        print(f"NOTICE: from where it was submitted: {again}", file=sys.stderr)
    return status


def _is_over(status: int, job: Job, ray_is_gone: bool) -> bool:
    """Whether nothing is left that the cluster's next head should continue.

    SIGTERM comes when a machine is shut down: a stop comes by SIGINT, which has forgotten the job. Neither a crash, nor
    the loss of Ray or of the storage, ends a search, and one that another process works on is that one's.
    """
    if status in (Interrupted.exit_status, CRASHED) or ray_is_gone:
        return False
    try:
        job.folder.create()
        return holder(RunFolder.at(job.storage) / job.name, surely=True) is None
    except (OSError, InputError):  # the storage fails
        return False


def _failed(error: TunerError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return error.exit_status


if __name__ == "__main__":
    main()
