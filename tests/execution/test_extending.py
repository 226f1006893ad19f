"""Searches that become longer, and failed trials that get another chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner import extend, load_run, retry, run
from tuner.errors import InputError
from tuner.runs.results import ResultSet

pytestmark = [pytest.mark.pairings, pytest.mark.usefixtures("ray_session")]
TOYS = Path(__file__).parent / "toys.py"


def search(storage: Path, function: str = "quadratic", **keys: Any) -> ResultSet:
    experiment = {
        "trainable": f"{TOYS}:{function}",
        "params": {"epochs": 3},
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "search": {"kind": "optuna", "seed": 3, "n_startup_trials": 3},
        "scheduler": {"kind": "asha", "grace_period": 1, "time_attr": "epoch", "max_t": 3, "reduction_factor": 3},
        "budget": {"trials": 6},
        "resources": {"gpu": 0, "max_concurrent_trials": 1},
        **keys,
    }
    return run(experiment, storage=storage, name="run", say=lambda text: None)


def quiet(text: str) -> None: ...


def epochs(results: ResultSet) -> list[list[int]]:
    return [[report.metrics["epoch"] for report in trial.reports] for trial in results.trials]


def test_a_longer_search_goes_on_from_its_checkpoints(tmp_path: Path) -> None:
    before = search(tmp_path)
    complete = [trial.id for trial in before.trials if trial.status == "completed"]
    extend(tmp_path / "run", trials="+3", max_t="9", overrides=["params.epochs=9"], say=quiet)
    after = load_run(tmp_path / "run")
    assert len(after.trials) == 9
    assert after.spec["budget"]["trials"] == 9
    assert after.spec["scheduler"]["max_t"] == 9
    for trial, reported in zip(after.trials, epochs(after), strict=True):
        assert reported == list(range(1, len(reported) + 1))
        assert trial.status == ("completed" if len(reported) == 9 else "stopped")
    for old, new in zip(before.trials, after.trials, strict=False):
        assert old.id == new.id
        if old.id not in complete:
            assert (new.status, new.steps) == (old.status, old.steps)
        for kept, report in zip(old.reports, new.reports, strict=False):
            assert (kept.step, kept.metrics, kept.timestamp) == (report.step, report.metrics, report.timestamp)
    assert max(len(reported) for reported in epochs(after)) == 9
    assert after.best is not None
    assert after.best.steps == 9


def test_a_trainable_that_counts_its_own_epochs_can_get_them_later(tmp_path: Path) -> None:
    """`--max-t` alone trains nothing more, and says so; the run is not lost for a second try."""
    search(tmp_path)
    said: list[str] = []
    after = extend(tmp_path / "run", max_t=6, say=said.append)
    complete = [trial.id for trial in after.trials if trial.status == "completed"]
    assert after.best is not None
    assert after.best.steps == 3
    assert [line for line in said if "--set params.NAME=N" in line]
    after = extend(tmp_path / "run", overrides=["params.epochs=6"], say=quiet)
    assert {trial.steps for trial in after.trials if trial.id in complete} == {6}


def test_more_trials_alone(tmp_path: Path) -> None:
    before = search(tmp_path)
    after = extend(tmp_path / "run", trials=8, say=quiet)
    assert [trial.config for trial in after.trials][:6] == [trial.config for trial in before.trials]
    assert [len(reported) for reported in epochs(after)][:6] == [len(reported) for reported in epochs(before)]
    assert len(after.trials) == 8
    with pytest.raises(InputError, match="it was 8, and 7 is not longer"):
        extend(tmp_path / "run", trials=7, say=quiet)
    with pytest.raises(InputError, match="nothing becomes longer"):
        extend(tmp_path / "run", say=quiet)
    with pytest.raises(InputError, match="there was no limit to add to"):
        extend(tmp_path / "run", wall_clock="+1h", say=quiet)
    assert load_run(tmp_path / "run").provenance["interrupted"] is False


def test_failed_trials_run_again_and_the_others_do_not(tmp_path: Path) -> None:
    """The trainable fails at epoch 2 as long as a file is missing."""
    flag = tmp_path / "now it works"
    keys = {"params": {"epochs": 3, "needs": str(flag)}, "search_space": {"x": {"grid_search": [0.1, 0.3, 0.6]}}}
    keys |= {"search": {"kind": "grid"}, "budget": {}, "scheduler": {"kind": "fifo"}, "failures": {"retries": 0}}
    before = search(tmp_path, "fails_without_a_file", **keys)
    assert [trial.status for trial in before.trials] == ["completed", "failed", "failed"]
    flag.touch()
    after = retry(tmp_path / "run", say=quiet)
    assert [trial.status for trial in after.trials] == ["completed"] * 3
    assert [trial.id for trial in after.trials] == [trial.id for trial in before.trials]
    assert epochs(after) == [[1, 2, 3]] * 3
    with pytest.raises(InputError, match="nothing to retry"):
        retry(tmp_path / "run", say=quiet)
