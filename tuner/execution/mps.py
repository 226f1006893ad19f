"""NVIDIA's Multi-Process Service (MPS): the kernels of trials that share a GPU run at the same time, and not in turn.

One daemon serves all searches of a user on a machine. The first process of a trial there starts it. Each process of a
trial holds a shared lock as long as it lives, and the system releases it however the process ends. A process that
watches the lock ends the daemon once nobody holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tuner.execution.gpus import Gpus
from tuner.execution.trial_context import TrialContext

DAEMON = "nvidia-cuda-mps-control"
LOOK_EVERY_S = 2.0
READY_S = 30.0
"""How long the daemon may take to answer."""
QUIT_S = 30.0

_held: list[IO[bytes]] = []
"""The lock of this process; open as long as it lives."""


class MpsFails(RuntimeError):
    """The daemon cannot be started on this machine."""


def folder() -> Path:
    """Of the daemon's pipes, log and locks; an administrator's own daemon is used if its folder is set."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or Path(tempfile.gettempdir(), f"tuner-mps-{os.getuid()}"))


def join(task: TrialContext) -> None:
    """Makes this process a client with its part of the GPU's memory, if ``task`` asks for that; before CUDA starts.

    Raises MpsFails.
    """
    share = task.request.get("GPU", 0)
    if not task.mps or not share or _held or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        return
    if not shutil.which(DAEMON):
        raise MpsFails(f"resources.mps: {DAEMON} is not installed on this machine; install it, or leave mps out")
    place = folder()
    place.mkdir(mode=0o700, exist_ok=True)
    if place.stat().st_uid != os.getuid():
        raise MpsFails(f"resources.mps: {place} belongs to another user; remove it")
    lock = (place / "clients").open("ab")
    fcntl.flock(lock, fcntl.LOCK_SH)
    _held.append(lock)
    deadline = time.monotonic() + READY_S
    while not _answers(place):
        if time.monotonic() > deadline:
            raise MpsFails(f"resources.mps: {DAEMON} does not answer; {place / 'log' / 'control.log'} may say why")
        _start(place)
        time.sleep(0.2)
    os.environ |= _environment(place)
    totals = [gpu.total_bytes for gpu in Gpus().read()]
    if totals:
        os.environ["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={int(min(totals) * share) >> 20}M"


def _environment(place: Path) -> dict[str, str]:
    return {"CUDA_MPS_PIPE_DIRECTORY": str(place), "CUDA_MPS_LOG_DIRECTORY": str(place / "log")}


def _answers(place: Path) -> bool:
    return (place / "control").exists() and _tell(place, "get_server_list")


def _tell(place: Path, command: str) -> bool:
    """Whether the daemon took a command."""
    environment = os.environ | _environment(place)
    try:
        told = subprocess.run(
            [DAEMON], input=f"{command}\n".encode(), env=environment, capture_output=True, timeout=QUIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return told.returncode == 0


def _start(place: Path) -> None:
    """Starts the daemon and the process that watches over it, unless they are there."""
    with _locked(place / "daemon") as is_free:
        if not is_free:
            return
    subprocess.Popen(
        [sys.executable, "-m", __name__, str(place)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ).wait()  # it leaves a child, which is not of this process: Ray ends the children of a process with it


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Within: holds the lock; False if another process does."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def main() -> None:
    """Runs the daemon until no process holds the lock of its clients."""
    if os.fork():
        os._exit(0)
    place = Path(sys.argv[1])
    with _locked(place / "daemon") as is_first:
        if is_first:
            _watch(place)


def _watch(place: Path) -> None:
    (place / "log").mkdir(exist_ok=True)
    with (place / "log" / "control.log").open("ab") as log:
        daemon = subprocess.Popen(
            [DAEMON, "-f"], env=os.environ | _environment(place), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    is_over = False
    try:
        while daemon.poll() is None and not is_over:
            time.sleep(LOOK_EVERY_S)
            with _locked(place / "clients") as is_over:  # who comes now waits for the lock, then starts another daemon
                if is_over:
                    _end(daemon, place)
    finally:  # also if somebody has removed the folder
        if daemon.poll() is None:
            _end(daemon, place)


def _end(daemon: subprocess.Popen[bytes], place: Path) -> None:
    _tell(place, "quit")
    try:
        daemon.wait(QUIT_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
    (place / "control").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
