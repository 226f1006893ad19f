"""The best model in MLflow's model registry, loaded by MLflow alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tests.tracking.held import parent
from tuner.errors import InputError
from tuner.experiment.reader import load_experiment
from tuner.experiment.tracking import MlflowTracking
from tuner.plan.cluster import Cluster, Node
from tuner.plan.planner import make_plan
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.storage.folder import RunFolder
from tuner.tracking.backends.mlflow import MlflowBackend

USER = """
import torch
from torch import nn

class Own(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(2, width)
    def forward(self, x):
        return self.layer(x)

def train(config): raise SystemExit

def load_model(config, checkpoint):
    model = Own(config["width"])
    model.load_state_dict(torch.load(checkpoint / "model.pt"))
    return model
"""
LOADS = """
import sys, torch, mlflow
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pytorch.load_model("models:/winner/1")
print(type(model).__name__, model(torch.ones(1, 2)).tolist())
"""


def experiment(**mlflow: Any) -> dict[str, Any]:
    return {
        "name": "n",
        "trainable": "t_registry.py:train",
        "search_space": {"width": {"choice": [3]}},
        "objective": {"metric": "acc", "mode": "max"},
        "resources": {"gpu": 0},
        "tracking": {"mlflow": mlflow},
    }


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType")  # MLflow's own, at its import
def test_the_best_model_is_registered_once_and_loads_without_the_user_s_code(
    user_folder: Path, tmp_path: Path, database: str
) -> None:
    import torch

    (user_folder / "t_registry.py").write_text(USER)
    folder = tmp_path / "run" / "checkpoint"
    folder.mkdir(parents=True)
    weights = {"layer.weight": torch.full((3, 2), 0.5), "layer.bias": torch.tensor([0.0, 1.0, 2.0])}
    torch.save(weights, folder / "model.pt")
    spec = experiment() | {"params": {}, "scheduler": {"kind": "fifo"}}
    provenance = {"id": "one", "interrupted": False, "roots": [str(user_folder)]}
    results = ResultSet(RunFolder.at(tmp_path / "run"), spec, provenance)
    best = Report("a", 1, 1.0, 1.8e9, {"acc": 0.9}, "checkpoint")
    results.add(Trial("a", 1, {"width": 3}, "completed", reports=[best], best=best))
    results.save_best()
    for _ in range(2):
        mirror = MlflowBackend(MlflowTracking.model_validate({"register": "winner"}), results)
        mirror.open(results)
        mirror.close(results)
    (version,) = MlflowClient(database).search_model_versions("name='winner'")
    assert version.run_id == parent(database).info.run_id
    assert version.tags["trial"] == "a"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    loaded = subprocess.run(
        [sys.executable, "-c", LOADS, database], cwd=elsewhere, capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split(" ", 1) == ["Own", "[[1.0, 2.0, 3.0]]\n"]


@pytest.mark.parametrize(
    ("module", "changes", "complaint"),
    [
        (USER.replace("load_model", "another"), {}, "needs a function load_model(config, checkpoint) in the module of"),
        (
            USER,
            {"objective": [{"metric": "acc", "mode": "max"}, {"metric": "size", "mode": "min"}]},
            "needs one objective: several leave a front",
        ),
        (USER, {}, ""),
    ],
)
def test_what_cannot_be_registered_is_said_before_the_search(
    user_folder: Path, module: str, changes: dict[str, Any], complaint: str
) -> None:
    (user_folder / "t_registry.py").write_text(module)
    cluster = Cluster((Node("a", {"CPU": 4.0, "GPU": 0.0, "memory": 2.0**33}),))
    loaded = load_experiment(experiment(register="winner") | changes)
    if not complaint:
        make_plan(loaded, cluster)
        return
    with pytest.raises(InputError) as raised:
        make_plan(loaded, cluster)
    (problem,) = raised.value.problems
    assert problem.key == "tracking.mlflow.register"
    assert complaint in problem.message
