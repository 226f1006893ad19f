"""Trials of a run folder as Ray's, without Ray's processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.train._internal import storage as ray_storage
from ray.tune.experiment import trial as ray_trial
from ray.tune.experiment.config_parser import _make_parser

from tests.runs.test_results import new_run
from tuner.execution.restore_trials import restore_trial
from tuner.runs.history import EventApplier
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Segment
from tuner.search.checkpoint_retention import copy_name


class Run:
    """A run folder with one trial of two reports, and what Ray makes trials of."""

    def __init__(self, folder: Path) -> None:
        self.results: ResultSet = new_run(folder)
        history = EventApplier(self.results)
        self.trial = history.suggested("t1", {"x": 0.5})
        for step in (1, 2):
            name = f"ray/t1/checkpoint_{step - 1:06}_a"
            (folder / name).mkdir(parents=True)
            history.reported(Report("t1", step, float(step), 1e9, {"acc": 0.1}, name))
        storage = ray_storage.StorageContext(storage_path=str(folder), experiment_dir_name="ray")
        spec = {"run": "any", "storage": storage, "trial_dirname_creator": lambda trial: trial.trial_id}
        self.search: Any = SimpleNamespace(_experiment=SimpleNamespace(spec=spec), _parser=_make_parser())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(ray_storage, "_get_ray_train_session_dir", lambda: str(tmp_path / "session"))
    monkeypatch.setattr(ray_trial, "validate_trainable", lambda name: None)
    (tmp_path / "run/ray").mkdir(parents=True)
    return Run(tmp_path / "run")


def test_a_trial_keeps_its_folder_also_within_the_second_in_which_another_driver_had_it(run: Run) -> None:
    for _ in range(2):
        revived = restore_trial(run.trial, run.results, run.search)
        revived.init_local_path()
        assert Path(revived.local_path).is_dir()
        assert revived.storage.trial_fs_path == run.results.folder.path + "/ray/t1"


def test_it_starts_from_its_latest_checkpoint_or_from_the_copy_that_it_took_over(run: Run) -> None:
    latest = restore_trial(run.trial, run.results, run.search).latest_checkpoint_result
    assert latest.checkpoint.path == run.results.folder.path + "/ray/t1/checkpoint_000001_a"
    run.trial.segments = [Segment(0, {"x": 0.5}), Segment(2, {"x": 0.7}, "t9", 4)]
    copy = run.results.folder.local_path / "ray/t1" / copy_name(run.trial.segments[-1])
    copy.mkdir()
    revived = restore_trial(run.trial, run.results, run.search)
    assert revived.latest_checkpoint_result.checkpoint.path == str(copy)
    assert revived.latest_checkpoint_result.metrics["training_iteration"] == 2
    assert revived.config == {"x": 0.7}
