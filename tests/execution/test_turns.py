"""What trials report in turns, when so many run that the driver would be asked too often, on a real Ray session."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.rungs import promotion
from tuner import run
from tuner.execution import controller
from tuner.runs.results import ResultSet

pytestmark = [pytest.mark.pairings, pytest.mark.usefixtures("ray_session")]
TOYS = Path(__file__).parent / "toys.py"


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two trials are many; the trials whose processes were asked for reports, at each call."""
    monkeypatch.setattr(controller, "AT_ONCE", 0)
    monkeypatch.setattr(controller, "TURN_S", 0.5)
    asked: list[str] = []
    ask = controller.Controller._schedule_trial_train

    def counted(self: controller.Controller, trial: Any) -> None:
        asked.append(trial.trial_id)
        ask(self, trial)

    monkeypatch.setattr(controller.Controller, "_schedule_trial_train", counted)
    return asked


def search(
    folder: Path, function: str, scheduler: dict, trials: int = 8, blocks: dict | None = None, **params: Any
) -> ResultSet:
    experiment: dict[str, Any] = {
        "trainable": f"{TOYS}:{function}",
        "params": {"folder": str(folder), **params},
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "search": {"kind": "random", "seed": 3},
        "scheduler": scheduler,
        "budget": {"trials": trials},
        "resources": {"gpu": 0, "max_concurrent_trials": 1},
        "failures": {"retries": 0, "stop_after": 100},
    }
    for name, block in (blocks or {}).items():
        experiment[name] = experiment.get(name, {}) | block
    return run(experiment, storage=folder, name="run", say=lambda text: None)


ASHA = {"kind": "asha", "time_attr": "epoch", "max_t": 16, "grace_period": 4, "reduction_factor": 2}


@pytest.mark.parametrize(
    ("time_attr", "each"), [("epoch", 3), ("epoch", 4), ("info/epoch", 100), ("training_iteration", 100)]
)
def test_reports_come_together_and_nothing_is_trained_beyond_a_rung(
    tmp_path: Path, calls: list[str], time_attr: str, each: int
) -> None:
    """Whichever of the reports have a checkpoint, which end a turn too."""
    results = search(tmp_path, "counts_its_steps", ASHA | {"time_attr": time_attr}, each=each)
    assert {trial.steps for trial in results.trials} <= {4, 8, 16}
    assert {trial.status for trial in results.trials} == {"completed", "stopped"}
    for trial in results.trials:
        assert [report.metrics["epoch"] for report in trial.reports] == list(range(1, trial.steps + 1))
        assert (tmp_path / str(trial.config["x"])).read_text() == str(trial.steps)
    assert len(calls) < sum(trial.steps for trial in results.trials)


def test_a_rule_that_may_stop_a_trial_at_any_report_is_asked_at_each(tmp_path: Path) -> None:
    scheduler = {"kind": "median", "time_attr": "epoch", "max_t": 16, "grace_period": 6, "min_samples_required": 1}
    results = search(tmp_path, "counts_its_steps", scheduler)
    stopped = [trial for trial in results.trials if trial.status == "stopped"]
    assert stopped
    for trial in stopped:
        assert (tmp_path / str(trial.config["x"])).read_text() == str(trial.steps)


def test_what_was_reported_before_a_trial_raised_is_not_lost(tmp_path: Path) -> None:
    results = search(tmp_path, "counts_its_steps", {"kind": "fifo"}, trials=2, raises=3)
    assert [(trial.status, trial.steps) for trial in results.trials] == [("failed", 3)] * 2
    assert all("a broken trial" in trial.reason for trial in results.trials)


def test_what_was_reported_before_a_bad_report_is_not_lost(tmp_path: Path) -> None:
    results = search(tmp_path, "misbehaves", {"kind": "fifo"}, trials=2, how="later nan")
    assert [(trial.status, trial.steps) for trial in results.trials] == [("failed", 1)] * 2
    assert all("report 2: score is nan" in trial.reason for trial in results.trials)


def test_checkpoints_are_those_of_their_reports(tmp_path: Path) -> None:
    results = search(tmp_path, "quadratic", promotion(max_t=9, reduction_factor=3), epochs=9)
    assert {trial.steps for trial in results.trials} == {1, 3, 9}
    for trial in results.trials:
        assert [report.metrics["epoch"] for report in trial.reports] == list(range(1, trial.steps + 1))


def test_a_trials_seconds_are_those_it_ran(tmp_path: Path, calls: list[str]) -> None:
    results = search(tmp_path, "counts_its_steps", {"kind": "fifo"}, trials=2, seconds=0.1)
    assert len(calls) < sum(trial.steps for trial in results.trials)
    assert results.used is not None
    for trial in results.trials:
        seconds = [report.seconds for report in trial.reports]
        assert all(later - earlier >= 0.1 for earlier, later in itertools.pairwise(seconds))
        assert 1.6 <= trial.seconds <= results.used.elapsed
    assert results.used.held_seconds > sum(trial.seconds for trial in results.trials)


@pytest.mark.parametrize("time_attr", ["epoch", "training_iteration"])
def test_what_is_recorded_of_an_exploited_trial_was_trained_with_it(tmp_path: Path, time_attr: str) -> None:
    pbt = {
        "kind": "pbt",
        "time_attr": time_attr,
        "max_t": 20,
        "perturbation_interval": 4,
        "quantile_fraction": 0.5,
    }
    results = search(tmp_path, "counts_its_steps", pbt, trials=4, epochs=100, each=4)
    exploited = [trial for trial in results.trials if trial.segments]
    assert exploited
    for trial in results.trials:
        assert trial.status == "completed"
        assert [report.step for report in trial.reports] == list(range(1, trial.steps + 1))
        for report in trial.reports:
            assert report.metrics["trained_with"] == trial.config_at(report.step)["x"]
    for trial in exploited:
        assert all(segment.after % 4 == 0 for segment in trial.segments)  # each course of four reports, undisturbed


def test_the_budget_ends_the_search_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    results = search(tmp_path, "counts_its_steps", {"kind": "fifo"}, trials=2, blocks={"budget": {"epochs": 5}})
    assert sum(trial.steps for trial in results.trials) == 5


def test_no_trial_seems_to_hang_for_its_turn(tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "TURN_S", 1000.0)
    turns: list[float] = []
    schedule = controller.Controller._schedule_trial_task

    def noted(self: controller.Controller, **task: Any) -> None:
        if task["method_name"] == "next_reports":
            turns.extend(task["args"])
        schedule(self, **task)

    monkeypatch.setattr(controller.Controller, "_schedule_trial_task", noted)
    blocks = {"failures": {"hang_after": "60s"}}
    results = search(tmp_path, "counts_its_steps", {"kind": "fifo"}, trials=2, blocks=blocks)
    assert [trial.status for trial in results.trials] == ["completed"] * 2
    assert set(turns) == {15.0}
    assert len(calls) < sum(trial.steps for trial in results.trials)


@pytest.mark.parametrize("at_once", [0, 10])
@pytest.mark.parametrize("scheduler", [{"kind": "fifo"}, ASHA], ids=["fifo", "asha"])
def test_a_trial_that_says_that_it_is_done_ends_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: dict, at_once: int
) -> None:
    monkeypatch.setattr(controller, "AT_ONCE", at_once)
    results = search(tmp_path, "counts_its_steps", scheduler, trials=2, done=3)
    assert [(trial.status, trial.steps) for trial in results.trials] == [("completed", 3)] * 2
