"""A trial that trains with others as one model, in its own process: it passes on what `fused_process` reports of it."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import cloudpickle
from ray.tune import Checkpoint

from tuner.execution.failure_classifier import UserError
from tuner.execution.fused_process import SOCKET, TASK, Reported, Start, locked, main
from tuner.execution.trial_context import TrialContext
from tuner.runs.consumption import Consumption

START_S = 60.0
"""How long the process may take to listen."""
POLL_S = 0.2
ATTEMPTS = 3
"""So many processes may end before they begin with a trial."""


def place() -> Path:
    """The folder of all such processes of this user on this machine."""
    return Path(tempfile.gettempdir(), f"tuner-fused-{os.getuid()}")


@dataclass
class FusedTrial:
    """A trial that trains with others, as its own process has it."""

    start: Start
    report: Callable[..., None]
    """As ``ray.tune.report``. If it raises `SystemExit`, the trial leaves."""
    decides: Callable[[dict[str, Any]], bool]
    """Whether the scheduler decides at a report with these metrics."""
    is_over: Callable[[], bool]
    """Whether the trial has been stopped meanwhile."""
    consumed: Consumption | None = None
    """Its part of the shared process; it comes with the reports."""

    def look(self) -> list[float]:
        """As of other ranks, for the meter of the trial: nothing is asked."""
        return []

    def known(self) -> Sequence[Consumption] | None:
        """What came with the latest report."""
        return None if self.consumed is None else [self.consumed]


class Seat:
    """The seat of this process in one that trains several trials of a search, for one trial after the other.

    Args:
        task: Of the search.
        run: Names the search, and the Ray that it runs in: others have other processes.
    """

    def __init__(self, task: TrialContext, run: str) -> None:
        self._task = task
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        self._key = hashlib.sha256(f"{run} {devices}".encode()).hexdigest()[:16]
        self._number = 0
        self._connection: Connection | None = None
        self._sending = threading.Lock()

    def train(self, trial: FusedTrial) -> None:
        """Trains a trial with others, and returns when it has ended.

        Raises UserError if the training fails, or its process dies.
        """
        for _ in range(ATTEMPTS):
            if self._attempt(trial):
                return
        raise UserError("process died", "the process that was to train it with others died before it began")

    def _attempt(self, trial: FusedTrial) -> bool:
        """Whether the trial has ended; False if the process has before it began with it."""
        self._number += 1
        has_started = has_ended = False
        try:
            self._send("begin", trial.start)
            while True:
                kind, value = self._receive(trial.is_over)
                if kind == "started":
                    has_started = True
                elif kind == "report":
                    self._pass_on(value, trial)
                elif kind == "again":
                    self.leave()
                    return self._attempt(trial)
                else:
                    has_ended = True
                    output, error = value
                    print(output, end="", flush=True)
                    if error is not None:
                        raise error
                    return True
        except (EOFError, ConnectionError) as error:
            self.leave()
            if has_started:
                raise UserError("process died", "the process that trained it with others died") from error
            return False
        finally:
            if not has_ended:
                self.end_trial()

    def _pass_on(self, told: Reported, trial: FusedTrial) -> None:
        print(told.output, end="", flush=True)
        trial.consumed = told.consumed
        waits = trial.decides(told.metrics)
        if not waits:
            self._send("continue")  # the others need not wait for this one
        try:
            checkpoint = Checkpoint.from_directory(str(told.checkpoint)) if told.checkpoint else None
            trial.report(told.metrics, checkpoint=checkpoint)
        finally:
            if told.checkpoint:
                shutil.rmtree(told.checkpoint, ignore_errors=True)
        if waits:
            self._send("continue")

    def _send(self, kind: str, value: Any = None) -> None:
        if self._connection is None:
            self._connection = self._connect()
        with self._sending:
            self._connection.send((kind, self._number, value))

    def end_trial(self) -> None:
        """The trial takes no report any more; also called while it stands at one, by another thread."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._send("leave")

    def _receive(self, is_over: Callable[[], bool]) -> tuple[str, Any]:
        """What comes next for this trial. Raises SystemExit if the trial is over."""
        assert self._connection is not None
        while True:
            while not self._connection.poll(POLL_S):
                if is_over():
                    raise SystemExit
            kind, number, value = self._connection.recv()
            if number == self._number:
                return kind, value

    def leave(self) -> None:
        """Gives the seat up; the next trial takes another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> Connection:
        """Takes the first free seat; where there is none, in a new process."""
        folder = place()
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise UserError("data", f"resources.fused: {folder} belongs to another user; remove it")
        with locked(folder):
            for number in itertools.count():
                own = folder / f"{self._key}-{number}"
                connection = _reach(own) or self._start(own)
                if not connection.poll(START_S):
                    raise UserError("process died", f"the process that trains with others does not answer: {own}")
                if connection.recv():
                    return connection
                connection.close()
        raise AssertionError

    def _start(self, folder: Path) -> Connection:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / TASK).write_bytes(cloudpickle.dumps(self._task))
        path = os.pathsep.join(entry for entry in sys.path if entry)
        subprocess.Popen(
            [sys.executable, "-c", f"from {main.__module__} import main; main()", str(folder)],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        ).wait()  # it leaves a child
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if connection := _reach(folder):
                return connection
            time.sleep(0.05)
        raise UserError("process died", f"the process that is to train it with others does not answer in {START_S:g} s")


def _reach(folder: Path) -> Connection | None:
    """A connection to the process of ``folder``; None if there is none, as after a kill."""
    with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
        return Client(str(folder / SOCKET), "AF_UNIX")
    return None
