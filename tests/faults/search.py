"""A search in a process of its own, to be hurt, resumed, and compared with one that nothing happened to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TOY = Path(__file__).parent / "toy.py"
TRIALS, EPOCHS = 8, 9

SEARCHES: dict[str, dict[str, Any]] = {
    "random": {"kind": "random", "seed": 1},
    "tpe": {"kind": "optuna", "seed": 1, "n_startup_trials": 3},
    "bohb": {"kind": "bohb", "seed": 1, "min_points_in_model": 2},
}


def experiment(search: str = "tpe", workers: int = 1, seconds: float = 0.03, **keys: Any) -> dict[str, Any]:
    return {
        "trainable": f"{TOY}:quadratic",
        "params": {"epochs": EPOCHS, "seconds": seconds},
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "search": SEARCHES[search],
        "scheduler": {"kind": "asha", "grace_period": 1, "time_attr": "epoch", "max_t": EPOCHS, "reduction_factor": 3},
        "budget": {"trials": TRIALS},
        "resources": {"gpu": 0, "max_concurrent_trials": workers},
        "checkpoints": {"keep_trials": TRIALS},
        **keys,
    }


TRIAL = ("ray::Trial", "ray::ResourceTrainable")
"""What Ray calls a trial's process, and what while one of its methods runs."""


class Search:
    """The run folder ``folder/runs/run`` and the process that works on it."""

    def __init__(self, folder: Path, storage: Path | None = None, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.storage = storage or folder / "runs"
        self.run = self.storage / "run"
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, spec: dict[str, Any] | None = None, terminal: int | None = None) -> Search:
        """``run`` of ``spec``; ``resume`` without it. On ``terminal``, the descriptor of one, or on a file."""
        if spec is not None:
            (self.folder / "x.yaml").write_text(json.dumps(spec))
            verb = ["run", "x.yaml", "--name", "run", "--storage", str(self.storage)]
        else:
            verb = ["resume", str(self.run)]
        self._said = self.folder / f"said-{time.monotonic_ns()}"  # a pipe that nobody reads would stop a long search
        with self._said.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tuner", *verb],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stdin=terminal,
                stderr=file if terminal is None else terminal,
                start_new_session=terminal is not None,
            )
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def wait(self, timeout: float = 120) -> tuple[int, str]:
        """Exit status, and what was said."""
        assert self.process is not None
        return self.process.wait(timeout), self._said.read_text()

    def until(self, condition: Callable[[], bool], timeout: float = 200) -> Search:
        """Waits as long as the process runs and ``condition`` does not hold."""
        assert self.process is not None
        deadline = time.monotonic() + timeout
        while not condition():
            assert self.process.poll() is None, self._said.read_text()
            assert time.monotonic() < deadline, "it did not come to that"
            time.sleep(0.005)
        return self

    def kill(self) -> Search:
        """kill -9; returns when the process is gone, and leaves its Ray to die by itself."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait()
        return self

    def children(self, *names: str) -> list[int]:
        """Processes below it whose program's name begins with one of ``names``."""
        below, found = {self.pid}, []
        for path in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                program = (path / "cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                continue
            if parent in below:
                below.add(int(path.name))
                found += [int(path.name)] * program.rpartition("/")[2].startswith(names)
        return found

    def events(self, what: str = "") -> list[dict[str, Any]]:
        """Of the journal, as far as it can be read by hand."""
        file = self.run / "journal.jsonl"
        if not file.exists():
            return []
        lines = [
            line.partition(b" ")[2] for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")
        ]
        events = [json.loads(line) for line in lines]
        return [event for event in events if event["what"] == what] if what else events

    def reports(self) -> int:
        return len(self.events("reported"))

    def finish(self) -> Search:
        """``resume`` to the end."""
        status, said = self.start().wait()
        assert status == 0, said
        self.said = said
        return self


def check_never_taken_back(search: Search) -> None:
    """No trial reported anything twice: each continued from its latest checkpoint."""
    reported = [(event["trial"], event["step"]) for event in search.events("reported")]
    assert len(reported) == len(set(reported))


def outcome(run: Path) -> list[Any]:
    """What a search found: of each trial its configuration, status and reports."""
    from tuner import load_run

    return [
        (trial.config, trial.status, trial.reason, [(r.step, r.metrics) for r in trial.reports], trial.best.step)
        for trial in load_run(run).trials
        if trial.best is not None
    ]


def check_complete(run: Path, trials: int = TRIALS) -> None:
    """Every trial is accounted for, no report is there twice or missing, and the best can be restored."""
    import pandas as pd

    from tuner import load_run

    results = load_run(run)
    assert len(results.trials) == trials
    assert len({json.dumps(trial.config) for trial in results.trials}) == trials
    assert {trial.status for trial in results.trials} <= {"completed", "stopped"}, [t.reason for t in results.trials]
    frame = pd.read_parquet(run / "results.parquet")
    assert not frame.duplicated(["trial_id", "training_iteration"]).any()
    for trial in results.trials:
        assert [report.metrics["epoch"] for report in trial.reports] == list(range(1, trial.steps + 1))
        assert [report.step for report in trial.reports] == list(range(1, trial.steps + 1))
    assert results.best is not None
    assert results.best.best is not None
    saved = json.loads((run / "best/checkpoint/state.json").read_text())
    assert saved == {"step": results.best.best.metrics["epoch"], "state": results.best.best.metrics["state"]}
    assert (run / "report.html").exists()
    assert results.provenance["interrupted"] is False
