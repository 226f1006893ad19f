"""The CPUs of a trial: those that it holds, and those that it will hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray import tune

from tuner.actions.run import prepare
from tuner.experiment.reader import load_experiment
from tuner.plan.cluster import Cluster, Node
from tuner.plan.planner import make_plan
from tuner.storage.folder import RunFolder
from tuner.training.trial_cpus import trial_cpus

CODE = """
from tuner.training.trial_cpus import trial_cpus
def prepare(config): return {"planned": trial_cpus()}
def train(config): ...
"""


def test_prepare_knows_those_of_each_trial(user_folder: Path) -> None:
    (user_folder / "t_cpus.py").write_text(CODE)
    experiment = {
        "trainable": "t_cpus.py:train",
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "resources": {"cpu": 3},
    }
    plan = make_plan(
        load_experiment(experiment, []), Cluster((Node("a", {"CPU": 8.0, "GPU": 0.0, "memory": 2.0**33}),))
    )
    params, _ = prepare(plan, RunFolder.at(user_folder / "run"), lambda text: None)
    assert params["planned"] == 3
    assert trial_cpus() == 1


def test_a_trial_knows_those_that_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        def get_trial_resources(self) -> Any:
            return tune.PlacementGroupFactory([{"CPU": 2.5}])

    monkeypatch.setattr(tune, "get_context", Context)
    assert trial_cpus() == 2.5
