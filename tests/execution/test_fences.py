"""A search or a trial that is not alone, on a real Ray session: another one writes to the same place."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.experiment.trial import _TrialInfo
from ray.tune.result import TRIAL_INFO

from tests.execution.test_checkpoints import At, experiment, press_ctrl_c
from tuner import resume, run
from tuner.errors import Interrupted, LockLost
from tuner.execution.fit import task_of
from tuner.execution.trial_process import trainable_class
from tuner.experiment.reader import load_experiment
from tuner.plan.cluster import this_machine
from tuner.plan.planner import make_plan
from tuner.runs.loading import load_latest
from tuner.runs.results import EXPERIMENT
from tuner.schedulers.fifo import Fifo
from tuner.storage.folder import RunFolder
from tuner.storage.lock import LOCK
from tuner.storage.manifest import find_damage

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("ray_session")]


def test_a_search_whose_run_was_taken_over_ends_and_writes_nothing_more(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    left: dict[str, bytes] = {}

    def take_over() -> None:
        (folder / LOCK).write_text(json.dumps({"owner": "b", "pid": 4711, "host": "elsewhere"}))
        for file in folder.glob("*.json*"):
            left[file.name] = file.read_bytes()

    spec = experiment(params={"epochs": 3000}, budget={"trials": 2})
    with pytest.raises(LockLost) as caught:
        run(spec, {}, storage=tmp_path, name="run", say=lambda text: None, listeners=[At(5, take_over)])
    assert "process 4711 on elsewhere has taken run.lock over" in str(caught.value)
    assert f"python -m tuner resume {folder}" in str(caught.value)
    assert b"4711" in (folder / LOCK).read_bytes()
    assert (folder / "provenance.json").read_bytes() == left["provenance.json"]
    assert not (folder / "report.html").exists()
    assert not (folder / "best").exists()
    with pytest.raises(Interrupted):
        resume(folder, say=lambda text: None, listeners=[At(5, press_ctrl_c)])
    assert [report.step for report in load_latest(RunFolder.at(folder)).trials[0].reports][:6] == [1, 2, 3, 4, 5, 6]


def test_a_partitioned_attempt_writes_beside_its_successor(tmp_path: Path) -> None:
    """Two processes of one trial, as after a partition: the elder continues to train and to save."""
    import ray
    from ray.train._internal.storage import StorageContext

    folder = RunFolder.at(tmp_path / "run")
    folder.create()
    folder.write(EXPERIMENT, b"")
    plan = make_plan(load_experiment(experiment(params={"epochs": 9})), this_machine())
    trial = trainable_class(task_of(plan, plan.spec.params, tmp_path), 1, Fifo(), 0.0)
    storage = StorageContext(storage_path=folder.path, experiment_dir_name="ray", trial_dir_name="t1")
    (tmp_path / "run/ray/t1").mkdir(parents=True)
    known = SimpleNamespace(trial_id="t1", placement_group_factory=None, experiment_dir_name="ray")
    config = {"x": 0.1, TRIAL_INFO: _TrialInfo(known)}

    def start() -> Any:
        return ray.remote(trial).options(num_cpus=0).remote(config=dict(config), storage=storage)

    def reports(process: Any, count: int) -> list[Path]:
        found = [ray.get(process.next_reports.remote(0.0))[0] for _ in range(count)]
        return [tmp_path / "run/ray/t1" / report["checkpoint_dir_name"] for report in found]

    elder, successor = start(), start()
    reports(elder, 2)
    written = reports(successor, 3)
    before = [{file.name: file.read_bytes() for file in folder.iterdir()} for folder in written]
    later = reports(elder, 5)
    assert not set(written) & set(later)
    assert [{file.name: file.read_bytes() for file in folder.iterdir()} for folder in written] == before
    assert [find_damage(RunFolder.at(folder)) for folder in written] == [""] * 3
    for process in (elder, successor):
        ray.kill(process)
