"""Ctrl-C and ``resume`` of searches that pause trials: what had been decided stays decided, and continues."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tuner import load_run, resume, run
from tuner.errors import Interrupted
from tuner.runs.failure import Failure
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial

pytestmark = [pytest.mark.pairings, pytest.mark.usefixtures("ray_session")]

COMMON = {"time_attr": "epoch", "max_t": 9, "reduction_factor": 3}
PROMOTION = {"kind": "asha", "variant": "promotion", "grace_period": 1, **COMMON}
HYPERBAND = {"kind": "hyperband", **COMMON}
SCHEDULERS = [pytest.param(PROMOTION, id="asha promotion"), pytest.param(HYPERBAND, id="hyperband")]
TRIALS = 9
RUNGS = (1, 3)
Reported = tuple[int, int, float]
"""(number of the trial, epoch, value)."""


def experiment(scheduler: dict[str, Any], slots: int) -> dict[str, Any]:
    return {
        "trainable": "tests/pairings/softmax_toy.py:train",
        "params": {"epochs": 9},
        "search_space": {"lr": {"loguniform": [1e-4, 1e-1]}, "hidden": {"randint": [8, 33]}},
        "objective": {"metric": "val_loss", "mode": "min"},
        "search": {"kind": "optuna", "seed": 1, "n_startup_trials": 3},
        "scheduler": scheduler,
        "budget": {"trials": TRIALS},
        "resources": {"gpu": 0, "max_concurrent_trials": slots},
        "checkpoints": {"keep_trials": TRIALS},
    }


class Leg:
    """Notes the reports as they come, and presses Ctrl-C at the ``n``-th."""

    def __init__(self, n: int | None = None) -> None:
        self.n = n
        self.reports: list[Reported] = []

    def started(self, results: ResultSet) -> None:
        self.results = results

    def reported(self, trial: Trial, report: Report) -> None:
        self.reports.append((trial.number, report.metrics["epoch"], self.results.value(report)))
        if len(self.reports) == self.n:
            os.kill(os.getpid(), signal.SIGINT)

    def retried(self, trial: Trial, failure: Failure) -> None: ...
    def ended(self, trial: Trial) -> None: ...
    def tick(self) -> None: ...
    def finished(self, results: ResultSet) -> None: ...


def uninterrupted(folder: Path, scheduler: dict[str, Any], slots: int) -> list[Reported]:
    leg = Leg()
    run(experiment(scheduler, slots), storage=folder, name="whole", listeners=[leg], say=lambda text: None)
    return leg.reports


def interrupted(folder: Path, scheduler: dict[str, Any], slots: int) -> list[Reported]:
    """The reports of a search that is interrupted at its first rung, on the way to the second, and to the end."""
    first, *others, last = legs = [Leg(4), Leg(7), Leg(5), Leg()]
    with pytest.raises(Interrupted):
        run(experiment(scheduler, slots), storage=folder, name="run", listeners=[first], say=lambda text: None)
    for leg in others:
        check_paused(load_run(folder / "run"))
        with pytest.raises(Interrupted):
            resume(folder / "run", listeners=[leg], say=lambda text: None)
    check_paused(load_run(folder / "run"))
    resume(folder / "run", listeners=[last], say=lambda text: None)
    return [report for leg in legs for report in leg.reports]


def check_paused(results: ResultSet) -> None:
    """Some trials wait, those whose rung made them pause are still there, and each can continue."""
    paused = [trial for trial in results.trials if trial.status == "paused"]
    assert paused
    assert {trial.status for trial in results.trials} <= {"pending", "paused", "stopped", "completed"}
    for trial in paused:
        assert trial.reports[-1].checkpoint
        assert trial.reason == "interrupted" or trial.steps in RUNGS


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_one_at_a_time_the_search_is_the_same_as_without(tmp_path: Path, scheduler: dict[str, Any]) -> None:
    assert interrupted(tmp_path, scheduler, slots=1) == uninterrupted(tmp_path, scheduler, slots=1)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_nobody_runs_past_its_rung_and_every_trial_ends(tmp_path: Path, scheduler: dict[str, Any]) -> None:
    reports = interrupted(tmp_path, scheduler, slots=2)
    results = load_run(tmp_path / "run")
    assert len(results.trials) == TRIALS
    assert len({(trial, epoch) for trial, epoch, _ in reports}) == len(reports)
    for trial in results.trials:
        assert [epoch for number, epoch, _ in reports if number == trial.number] == list(range(1, trial.steps + 1))
        assert [report.metrics["epoch"] for report in trial.reports] == list(range(1, trial.steps + 1))
        assert trial.status == ("completed" if trial.steps == 9 else "stopped")
        assert trial.steps in (*RUNGS, 9)
    for rung, following in itertools.pairwise((*RUNGS, 9)):
        values = {number: value for number, epoch, value in reports if epoch == rung}
        went_on = {number for number, epoch, _ in reports if epoch == rung + 1}
        assert {number for number, epoch, _ in reports if epoch == following} == went_on
        best = sorted(values, key=values.__getitem__)
        assert best[0] in went_on
        if scheduler["kind"] == "hyperband":
            assert went_on == set(best[: len(values) // 3])
