"""The search's side of `tuner.tracking.follower`."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tuner.experiment.tracking import Tracking
from tuner.runs.failure import Failure
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial

_QUIET_S = 3.0
"""A notice says so when the last of it takes longer."""


class TrackingProcess:
    """A listener of the search that starts the follower, passes on what it says, and waits for its end.

    The follower may be started before there is a run folder: what it imports takes seconds, in which a search is
    planned and Ray starts.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._process: subprocess.Popen[str] | None = None
        self._follows = False
        self._has_ended = False
        self._answers: queue.SimpleQueue[dict[str, str] | None] = queue.SimpleQueue()
        self._missing = "the process that sends it has died; see the run's log"

    def start(self, tracking: Tracking) -> None:
        """Starts the follower."""
        early = ["mlflow", "mlflow.store.tracking.sqlalchemy_store"] if tracking.mlflow else []
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([_ROOT, os.environ.get("PYTHONPATH", "")])}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tuner.tracking.follower", *early],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,  # it outlives a search that is killed, and settles what is left
        )

    def close(self) -> None:
        """Ends a follower that got nothing to follow."""
        if self._process is None or self._follows:
            return
        self._process.kill()
        self._process.communicate()

    def started(self, results: ResultSet) -> None:
        if self._process is None:
            self.start(Tracking.model_validate(results.section("tracking")))
        assert self._process is not None
        assert self._process.stdin is not None
        folder = results.folder
        with contextlib.suppress(BrokenPipeError):  # it has died: the search continues, and `finished` says so
            location = str(folder.local_path) if folder.is_local else folder.location
            told = {"folder": location, "is_new": not results.trials}
            self._process.stdin.write(f"{json.dumps(told)}\n")
            self._process.stdin.flush()
        self._follows = True
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def tick(self) -> None:
        while not self._answers.empty():
            self._take(self._answers.get())

    def _take(self, answer: dict[str, str] | None) -> None:
        if answer is None:
            self._has_ended = True
            return
        self._missing = answer.get("missing", self._missing)
        if notice := answer.get("notice"):
            self._say(f"NOTICE: {notice}")

    def _next_answer(self) -> dict[str, str] | None:
        try:
            return self._answers.get(timeout=_QUIET_S)
        except queue.Empty:
            self._say("sending the rest of the run to where it is tracked; Ctrl-C does not wait for it")
            return self._answers.get()

    def finished(self, results: ResultSet) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        again = f"python -m tuner sync {results.folder.quoted}"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            while not self._has_ended:
                self._take(self._next_answer())
        except KeyboardInterrupt:
            self._say(f"process {self._process.pid} still sends the rest; if it is stopped too: {again}")
            return
        self._process.wait()
        if self._missing:
            self._say(f"NOTICE: not all was sent: {self._missing}; to send it: {again}")

    def reported(self, trial: Trial, report: Report) -> None: ...
    def retried(self, trial: Trial, failure: Failure) -> None: ...
    def ended(self, trial: Trial) -> None: ...


_ROOT = str(Path(__file__).resolve().parents[2])
"""The folder in which the follower finds this package, installed or not."""
