"""Where the searches of gpu.py lie, and how they run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner import ResultSet, run

GIB = 2**30
TRIALS = str(Path(__file__).with_name("gpu_trials.py"))


@dataclass
class Bench:
    """Where the runs lie, and what the rows of ``works`` said."""

    storage: Path
    rehearsed: bool
    rounds: int
    cifar10: Path | None
    broken: list[str] = field(default_factory=list)

    def run(self, trainable: str, space: Mapping[str, Any], **blocks: Any) -> ResultSet:
        """One search: a grid on the whole GPU, unless `blocks` say otherwise."""
        experiment = {
            "trainable": trainable,
            "search_space": dict(space),
            "objective": {"metric": "score", "mode": "max"},
            "search": {"kind": "grid"},
            "scheduler": {"kind": "fifo"},
            "resources": {"cpu": 1, "gpu": 1},
            **blocks,
        }
        return run(experiment, storage=self.storage, name=f"bench-{time.time_ns()}", say=quiet)

    def holds(self, what: str, expected: str, found: str, is_so: bool) -> None:
        """Prints a row of ``works``."""
        if not is_so:
            self.broken.append(what)
        print(f"| {what} | {expected} | {found if is_so else f'**{found}**'} |", flush=True)


def quiet(text: str) -> None:
    """What a run says is not printed."""
