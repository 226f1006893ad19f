"""Searches from Python on a real Ray: callables of scripts, what an error brings, and a resume that finds the code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from ray import tune

import tuner
from tuner.errors import InputError, NoUsableResult

ROOT = Path(__file__).parents[2]


def search(trainable: Any, **keys: Any) -> tuner.Search:
    keys = {"objective": tuner.minimize("loss"), "resources": tuner.Resources(gpu=0), "name": "mine"} | keys
    return tuner.Search(trainable, {"x": tune.uniform(0, 1)}, **keys)


def bowl(centre: float, epochs: int = 3) -> Any:
    def train(config: dict[str, Any]) -> None:
        for epoch in range(1, epochs + 1):
            tune.report({"loss": (config["x"] - centre) ** 2 + 1 / epoch})

    return train


class Follower:
    """A callback that only counts."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def started(self, results: Any) -> None:
        self.seen.append("started")

    def reported(self, trial: Any, report: Any) -> None:
        self.seen.append("reported")

    def retried(self, trial: Any, failure: Any) -> None: ...

    def ended(self, trial: Any) -> None:
        self.seen.append("ended")

    def tick(self) -> None: ...

    def finished(self, results: Any) -> None:
        self.seen.append("finished")


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_a_closure_is_searched_extended_and_replayed(tmp_path: Path) -> None:
    follower = Follower()
    made = search(
        bowl(0.3),
        searcher=tuner.searchers.Bohb(seed=0),
        scheduler=tuner.schedulers.Asha(max_t=3),
        budget=tuner.Budget(trials=4),
    )
    run = made.run(storage=tmp_path, name="q", callbacks=[follower], progress="none")
    assert (run.state, len(run.trials)) == ("finished", 4)
    best = run.best_config
    assert best is not None
    assert run.best_value == pytest.approx((best["x"] - 0.3) ** 2 + 1 / 3)
    assert run.best_checkpoint is None
    assert follower.seen[0] == "started"
    assert follower.seen[-1] == "finished"
    assert follower.seen.count("ended") == 4
    assert (tmp_path / "q/code/trainable.py").read_text().startswith("def train(config")
    longer = tuner.load("q", storage=str(tmp_path)).extend(trials=2, progress="none")
    assert len(longer.trials) == 6
    assert len(tuner.load(tmp_path / "q").trials) == 6


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
def test_a_search_without_a_result_brings_what_it_knows(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        raise ValueError("never")

    made = search(train, budget=tuner.Budget(trials=2), failures=tuner.Failures(retries=0))
    with pytest.raises(NoUsableResult) as caught:
        made.run(storage=tmp_path, name="q", progress="none")
    run = caught.value.results
    assert isinstance(run, tuner.Run)
    assert [trial.status for trial in run.trials] == ["failed", "failed"]
    assert run.best_value is None
    again = run.retry(trainable=bowl(0.5), progress="none")
    assert [trial.status for trial in again.trials] == ["completed", "completed"]


@pytest.mark.usefixtures("ray_session")
def test_a_trainable_that_is_imported_is_not_replaced(tmp_path: Path) -> None:
    made = search(
        f"{Path(__file__).parent}/toys.py:quadratic", objective=tuner.maximize("score"), budget=tuner.Budget(trials=1)
    )
    run = made.run(storage=tmp_path, name="q", progress="none")
    with pytest.raises(InputError, match=r"trainable: .*toys.py:quadratic, which is imported: leave it out"):
        run.extend(trials=1, trainable=bowl(0.5), progress="none")


SCRIPT = """
import sys, time
import tuner
from ray import tune

scale = float(sys.argv[1])

def loss(x):
    return scale * x

def train(config):
    for epoch in range(1, 40):
        time.sleep(0.1)
        tune.report({"loss": loss(config["x"])})

if __name__ == "__main__":
    tuner.Search(
        train, {"x": tune.uniform(0, 1)}, objective=tuner.minimize("loss"), budget=tuner.Budget(trials=4),
        resources=tuner.Resources(gpu=0),
    ).run(name="killed", storage="runs")
"""


@pytest.mark.pairings
def test_the_function_of_a_script_that_was_killed_is_found_by_the_command_line(user_folder: Path) -> None:
    (user_folder / "search.py").write_text(textwrap.dedent(SCRIPT))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "search.py", "2.0"], env=environment, stderr=subprocess.DEVNULL)
    journal = user_folder / "runs/killed/journal.jsonl"
    until = time.monotonic() + 90
    while not (journal.exists() and b'"reported"' in journal.read_bytes()):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (user_folder / "search.py").unlink()
    command = [sys.executable, "-m", "tuner", "resume", "runs/killed"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = tuner.load("runs/killed")
    assert len(run.trials) == 4
    assert run.best_config is not None
    assert run.best_value == pytest.approx(2.0 * run.best_config["x"])
