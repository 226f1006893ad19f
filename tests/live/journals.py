"""Run folders whose journals a test writes, event by event."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.made_up_run import SPEC
from tuner.runs.commands import Command, discard, waiting_commands
from tuner.runs.journal import JournalWriter
from tuner.storage.folder import RunFolder


class Journal:
    """A run folder with a journal."""

    def __init__(self, storage: Path, name: str = "run", **spec: Any) -> None:
        self.folder = RunFolder.at(storage / name)
        self.folder.create()
        self.writer = JournalWriter(self.folder)
        self.append("began", spec=SPEC | spec, provenance={})

    @classmethod
    def of(cls, folder: RunFolder) -> Journal:
        """That of a run that there is already."""
        made = cls.__new__(cls)
        made.folder, made.writer = folder, JournalWriter(folder)
        return made

    def append(self, what: str, **fields: Any) -> None:
        """An event."""
        self.writer.append(what, **fields)

    def start(self, trial: str, **config: Any) -> None:
        """A trial that is suggested and runs."""
        self.append("suggested", trial=trial, config={"lr": 0.1} | config)
        self.append("started", trial=trial)

    def report(self, trial: str, step: int, value: float, **more: Any) -> None:
        """A report of it."""
        metrics = {"epoch": step, "val_accuracy": value, **more.pop("metrics", {})}
        timed = {"seconds": 2.0 * step, "timestamp": time.time()}
        self.append("reported", trial=trial, step=step, **timed, metrics=metrics, checkpoint=None, **more)

    def fail(self, trial: str, step: int, message: str, retried: bool = False) -> None:
        """A failed attempt at it."""
        self.append("failed attempt", trial=trial, kind="exception", message=message, step=step, retried=retried)

    def end(self, trial: str, status: str, rung: int | None = None) -> None:
        """Its end."""
        self.append("ended", trial=trial, status=status, reason="", rung=rung)

    def commanded(self, do: str, by: str, done: bool = True, **arguments: Any) -> None:
        """What a person commanded."""
        told = {"id": "0", "do": do, "by": by, "sent": time.time(), "arguments": arguments}
        self.append("commanded", **told, done=done, reason="" if done else "no", trials=[])

    @contextlib.contextmanager
    def answers_a_command(self, done: bool = True, reason: str = "") -> Iterator[list[Command]]:
        """Within: the first command is answered as the control loop of a search does. Gives the command."""
        found: list[Command] = []
        answering = threading.Thread(target=self._answer, args=(found, done, reason))
        answering.start()
        yield found
        answering.join()

    def _answer(self, found: list[Command], done: bool, reason: str) -> None:
        while not found:
            found += waiting_commands(self.folder)[0]
            time.sleep(0.01)
        (command,) = found
        told = {"id": command.id, "do": command.do, "by": command.by, "sent": command.sent}
        told |= {"arguments": dict(command.arguments), "done": done, "reason": reason, "trials": [], "elapsed": 0.0}
        self.append("commanded", **told)
        discard(self.folder, command)

    def live(self, **values: Any) -> None:
        """The run's live.json."""
        self.folder.write("live.json", json.dumps({"time": time.time(), **values}).encode())
