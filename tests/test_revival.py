"""Trials of a run folder as Ray's, without Ray's processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.train._internal import storage as ray_storage
from ray.tune.experiment import trial as ray_trial
from ray.tune.experiment.config_parser import _make_parser

from tests.test_results import new_run
from tuner.engine.revival import revive
from tuner.history import History
from tuner.results import ResultSet
from tuner.trial import Report


class Run:
    """A run folder with one trial of two reports, and what Ray makes trials of."""

    def __init__(self, folder: Path) -> None:
        self.results: ResultSet = new_run(folder)
        history = History(self.results)
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
        revived = revive(run.trial, run.results, run.search)
        revived.init_local_path()
        assert Path(revived.local_path).is_dir()
        assert revived.storage.trial_fs_path == run.results.folder.path + "/ray/t1"
