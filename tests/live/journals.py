"""Run folders whose journals a test writes, event by event."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.made_up_run import SPEC
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

    def live(self, **values: Any) -> None:
        """The run's live.json."""
        self.folder.write("live.json", json.dumps({"time": time.time(), **values}).encode())
