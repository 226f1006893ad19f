"""What trials report in turns, when so many run that the driver would be asked too often, on a real Ray session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner import run
from tuner.engine import controller
from tuner.results import ResultSet

pytestmark = pytest.mark.usefixtures("ray_session")
TOYS = Path(__file__).parent / "toys.py"


class Calls:
    """Counts the events that the driver has gone through, and the reports."""

    def __init__(self) -> None:
        self.events = self.reports = 0

    def tick(self) -> None:
        self.events += 1

    def reported(self, trial: Any, report: Any) -> None:
        self.reports += 1

    def started(self, results: Any) -> None: ...
    def retried(self, trial: Any, failure: Any) -> None: ...
    def ended(self, trial: Any) -> None: ...
    def finished(self, results: Any) -> None: ...


@pytest.fixture(autouse=True)
def two_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "AT_ONCE", 0)
    monkeypatch.setattr(controller, "TURN_S", 0.5)


def search(folder: Path, function: str, scheduler: dict, trials: int = 8, **params: Any) -> tuple[ResultSet, Calls]:
    calls = Calls()
    experiment = {
        "trainable": f"{TOYS}:{function}",
        "params": {"folder": str(folder), **params},
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "search": {"kind": "random", "seed": 3},
        "scheduler": scheduler,
        "budget": {"trials": trials},
        "resources": {"gpu": 0},
        "failures": {"retries": 0, "stop_after": 100},
    }
    return run(experiment, storage=folder, name="run", say=lambda text: None, listeners=[calls]), calls


ASHA = {"kind": "asha", "time_attr": "epoch", "max_t": 16, "grace_period": 4, "reduction_factor": 2}


def test_reports_come_together_and_nothing_is_trained_beyond_a_rung(tmp_path: Path) -> None:
    results, calls = search(tmp_path, "counts_its_steps", ASHA)
    assert {trial.steps for trial in results.trials} <= {4, 8, 16}
    assert {trial.status for trial in results.trials} == {"completed", "stopped"}
    for trial in results.trials:
        assert [report.metrics["epoch"] for report in trial.reports] == list(range(1, trial.steps + 1))
        assert (tmp_path / str(trial.config["x"])).read_text() == str(trial.steps)
    assert calls.events < calls.reports == sum(trial.steps for trial in results.trials)


def test_a_rule_that_may_stop_a_trial_at_any_report_is_asked_at_each(tmp_path: Path) -> None:
    scheduler = {"kind": "median", "time_attr": "epoch", "max_t": 16, "grace_period": 6, "min_samples_required": 1}
    results, _ = search(tmp_path, "counts_its_steps", scheduler)
    stopped = [trial for trial in results.trials if trial.status == "stopped"]
    assert stopped
    for trial in stopped:
        assert (tmp_path / str(trial.config["x"])).read_text() == str(trial.steps)


def test_what_was_reported_before_a_trial_raised_is_not_lost(tmp_path: Path) -> None:
    results, _ = search(tmp_path, "counts_its_steps", {"kind": "fifo"}, trials=2, raises=3)
    assert [(trial.status, trial.steps) for trial in results.trials] == [("failed", 3)] * 2
    assert all("a broken trial" in trial.reason for trial in results.trials)


def test_what_was_reported_before_a_bad_report_is_not_lost(tmp_path: Path) -> None:
    results, _ = search(tmp_path, "misbehaves", {"kind": "fifo"}, trials=2, how="later nan")
    assert [(trial.status, trial.steps) for trial in results.trials] == [("failed", 1)] * 2
    assert all("report 2: score is nan" in trial.reason for trial in results.trials)


def test_checkpoints_are_those_of_their_reports(tmp_path: Path) -> None:
    promotion = {"kind": "asha", "variant": "promotion", "time_attr": "epoch", "max_t": 9, "reduction_factor": 3}
    results, _ = search(tmp_path, "quadratic", promotion, epochs=9)
    assert {trial.steps for trial in results.trials} == {1, 3, 9}
    for trial in results.trials:
        assert [report.metrics["epoch"] for report in trial.reports] == list(range(1, trial.steps + 1))
