"""On which GPU of its node a trial that failed is tried again. No GPU is needed: Ray counts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.execution.test_run import experiment
from tests.journals import read_journal
from tuner import run
from tuner.storage.folder import RunFolder

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("two_gpus")]


def test_a_trial_that_failed_waits_for_another_gpu(tmp_path: Path) -> None:
    """The other trial runs for longer than a process takes to start; meanwhile the GPU that failed is free."""
    given = experiment("on_gpus", {"x": {"uniform": [0, 1]}}, file="gpu_toys.py", params={"seconds": 4})
    given |= {"budget": {"trials": 2}, "resources": {"gpu": 1}}
    results = run(given, storage=tmp_path, name="run", say=lambda text: None)
    told = [e for e in read_journal(RunFolder.at(tmp_path / "run")).events if e["what"] == "reported"]
    gpus = [[e["metrics"]["gpu"] for e in told if e["trial"] == trial.id] for trial in results.trials]
    assert sorted(gpus) == [[0, 1, 1, 1], [1, 1, 1]]
    assert [trial.status for trial in results.trials] == ["completed", "completed"]


def test_a_gpu_that_failed_gets_no_other_trial(tmp_path: Path) -> None:
    """All that follow wait for the GPU that is left, one after the other; another attempt on GPU 0 would fail, too."""
    given = experiment("on_gpus", {"x": {"uniform": [0, 1]}}, file="gpu_toys.py", params={"seconds": 0.1})
    given |= {"budget": {"trials": 5}, "resources": {"gpu": 1}, "failures": {"retries": 1}}
    results = run(given, storage=tmp_path, name="run", say=lambda text: None)
    assert [trial.status for trial in results.trials] == ["completed"] * 5
    failures = [failure for trial in results.trials for failure in trial.failures]
    assert [failure.kind for failure in failures] == ["GPU"]
    (notice,) = [notice for notice in results.notices if "the GPU of trial" in notice]
    assert "uncorrectable ECC error" in notice
    assert notice.endswith("no trial of this search gets it any more")


def test_each_rank_of_a_trial_finds_its_gpu_at_its_local_rank(tmp_path: Path) -> None:
    """As Lightning and Accelerate look for it; also in the second trial, whose first rank is in the same process."""
    given = experiment("seen_by_ranks", {"x": {"grid_search": [1, 2]}}, file="gpu_toys.py", search={"kind": "grid"})
    given |= {"resources": {"gpu": 1, "workers": 2}}
    results = run(given, storage=tmp_path, name="run", say=lambda text: None)
    told = [e for e in read_journal(RunFolder.at(tmp_path / "run")).events if e["what"] == "reported"]
    assert [trial.status for trial in results.trials] == ["completed", "completed"]
    metrics = [event["metrics"] for event in told]
    assert [m["rank"] for m in metrics] == [0, 1, 0, 1]
    assert all(m["taken"] == m["own"] for m in metrics)
    assert {m["own"] for m in metrics} == {"0", "1"}
    assert {len(m["visible"]) for m in metrics} == {len("0,1")}
