"""Trials that train as one model, and are separate ones to the searcher, the scheduler and the run folder."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import tuner
from trainables import digits
from tuner.errors import InputError

ROOT = Path(__file__).parents[2]
EPOCHS = 9


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two processes of two threads each, on two cores, are a hundred times slower for such small matrices."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def search(**keys: Any) -> tuner.Search:
    space = {"lr": {"loguniform": [1e-3, 0.5]}, "dropout": {"uniform": [0, 0.3]}, "seed": {"randint": [0, 100]}}
    return tuner.Search(
        None,
        space,
        objective=tuner.minimize("val_loss"),
        params={"epochs": EPOCHS},
        searcher=tuner.searchers.Random(seed=0),
        **{"budget": tuner.Budget(trials=8), **keys},
    )


def asha(variant: str) -> Any:
    return tuner.schedulers.Asha(time_attr="epoch", max_t=EPOCHS, grace_period=1, reduction_factor=3, variant=variant)


def train_many(configs: Sequence[dict[str, Any]], report: Callable[..., bool], starts: Sequence[Path] | None) -> None:
    digits.train_many([digits.Config(**config) for config in configs], report, starts)


def losses(trial: tuner.Trial) -> list[float]:
    return [report.metrics["val_loss"] for report in trial.reports]


def alone(config: dict[str, Any]) -> list[float]:
    """The losses of a configuration in a batch of one, which tests/trainables compares with `digits.train`."""
    found: list[float] = []

    def take(number: int, metrics: dict[str, Any], save: Callable[[str], None]) -> bool:
        found.append(metrics["val_loss"])
        return True

    digits.train_many([digits.Config(**config)], take)
    return found


@pytest.mark.parametrize("variant", ["stopping", "promotion"])
def test_each_trial_is_stopped_by_itself_and_has_its_own_numbers(tmp_path: Path, variant: str) -> None:
    with search(scheduler=asha(variant)).begin(name="a", storage=tmp_path) as loop:
        tuner.train_fused(loop, train_many, at_once=4)
    results = tuner.load_run(tmp_path / "a")
    assert len(results.trials) == 8
    assert {trial.status for trial in results.trials} == {"completed", "stopped"}
    assert {trial.steps for trial in results.trials} > {EPOCHS}
    for trial in results.trials:
        found = losses(trial)
        assert found == pytest.approx(alone(results.full_config(trial))[: len(found)], abs=1e-5)
    best = results.best
    assert best is not None
    assert best.best is not None
    config = digits.Config(**results.full_config(best))
    score = digits.evaluate(config, tmp_path / "a" / str(best.best.checkpoint), "val")
    assert score["val_loss"] == pytest.approx(best.best.metrics["val_loss"], abs=1e-6)
    kept = [folder for trial in (tmp_path / "a/ray").iterdir() for folder in trial.iterdir()]
    assert len(kept) <= 2 * len(results.trials)


def test_other_shapes_train_apart(tmp_path: Path) -> None:
    groups: list[set[int]] = []

    def train(configs: Sequence[dict[str, Any]], report: Callable[..., bool], starts: Any) -> None:
        groups.append({config["hidden"] for config in configs})
        for number, config in enumerate(configs):
            report(number, {"val_loss": config["lr"]})

    made = tuner.Search(
        None,
        {"lr": {"loguniform": [1e-3, 1]}, "hidden": {"choice": [8, 16]}},
        objective=tuner.minimize("val_loss"),
        searcher=tuner.searchers.Random(seed=0),
        budget=tuner.Budget(trials=8),
    )
    with made.begin(storage=tmp_path) as loop:
        results = tuner.train_fused(loop, train, at_once=8, shape=lambda config: config["hidden"])
    assert sorted(map(tuple, groups)) == [(8,), (16,)]
    assert results.count("completed") == 8


def test_a_trial_that_diverges_fails_alone_and_an_error_fails_all_of_its_group(tmp_path: Path) -> None:
    calls = []

    def train(configs: Sequence[dict[str, Any]], report: Callable[..., bool], starts: Any) -> None:
        calls.append(len(configs))
        assert not report(0, {"val_loss": float("nan")})
        assert report(1, {"val_loss": 1.0})
        if len(calls) == 2:
            raise RuntimeError("no memory")

    with search(budget=tuner.Budget(trials=4)).begin(storage=tmp_path) as loop:
        results = tuner.train_fused(loop, train, at_once=2)
    assert [(trial.status, trial.reason) for trial in results.trials] == [
        ("failed", "val_loss is nan"),
        ("completed", ""),
        ("failed", "val_loss is nan"),
        ("failed", "RuntimeError: no memory"),
    ]


def test_a_trial_without_a_report_fails_alone(tmp_path: Path) -> None:
    def train(configs: Any, report: Callable[..., bool], starts: Any) -> None:
        report(0, {"val_loss": 1.0})

    with search(budget=tuner.Budget(trials=2)).begin(storage=tmp_path) as loop:
        first, second = tuner.train_fused(loop, train).trials
    assert (first.status, second.status, second.reason) == ("completed", "failed", "train_many made no report of it")


def test_a_report_without_the_objective_ends_the_loop_in_one_line(tmp_path: Path) -> None:
    def train(configs: Any, report: Callable[..., bool], starts: Any) -> None:
        report(0, {"loss": 1.0})

    with search().begin(storage=tmp_path) as loop, pytest.raises(InputError, match="val_loss is not among the metrics"):
        tuner.train_fused(loop, train)


KILLED = """
import os, signal, sys
import tuner
from tests.actions.test_fused_trials import search, train_many

def dies(configs, report, starts):
    def counted(number, metrics, save):
        if (number, metrics["epoch"]) == (1, 5):
            os.kill(os.getpid(), signal.SIGKILL)
        return report(number, metrics, save)
    train_many(configs, counted, starts)

with search(budget=tuner.Budget(trials=3)).begin(name="a", storage=sys.argv[1]) as loop:
    tuner.train_fused(loop, dies, at_once=3)
"""


@pytest.mark.processes
def test_after_a_kill_the_trials_continue_from_their_checkpoints(tmp_path: Path) -> None:
    """The first had told its fifth epoch, the others their fourth: they continue apart."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    with tuner.load(tmp_path / "a").reopen() as loop:
        assert sorted(trial.steps for trial in loop.results.trials) == [4, 4, 5]
        results = tuner.train_fused(loop, functools.partial(train_many), at_once=3)
    assert [trial.status for trial in results.trials] == ["completed"] * 3
    for trial in results.trials:
        assert losses(trial) == pytest.approx(alone(results.full_config(trial)), abs=1e-5)
