"""What `prepare` of a trainable is given before the search."""

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

MACHINE = Cluster((Node("a", {"CPU": 8.0, "GPU": 0.0, "memory": 2.0**33}),))
EXPERIMENT = {
    "trainable": "t_prepare.py:train",
    "search_space": {"on": {"choice": [False, True]}, "rate": {"uniform": [0, 1], "when": {"on": True}}},
    "objective": {"metric": "score", "mode": "max"},
}


def prepared(folder: Path, code: str, **extra: Any) -> dict[str, Any]:
    """The parameters after a ``prepare`` that returns ``code``."""
    head = "from tuner.training.trial_cpus import trial_cpus\ndef train(config): ...\n"
    (folder / "t_prepare.py").write_text(f"{head}def prepare(config): return {code}\n")
    plan = make_plan(load_experiment(EXPERIMENT | extra, []), MACHINE)
    _, params, notices = prepare(plan, RunFolder.at(folder / "run"), folder, lambda text: None)
    assert notices == plan.notices
    return params


def test_it_knows_the_cpus_of_each_trial(user_folder: Path) -> None:
    assert prepared(user_folder, "{'cpus': trial_cpus()}", resources={"cpu": 3}) == {"cpus": 3}
    assert trial_cpus() == 1


def test_a_trial_knows_the_cpus_that_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        def get_trial_resources(self) -> Any:
            return tune.PlacementGroupFactory([{"CPU": 2.5}] * 3)  # of three processes

    monkeypatch.setattr(tune, "get_context", Context)
    assert trial_cpus() == 2.5


@pytest.mark.parametrize("seed", range(6))
def test_it_sees_what_is_optional(user_folder: Path, seed: int) -> None:
    seen = prepared(user_folder, "{'seen': 'rate' in config}", search={"kind": "random", "seed": seed})
    assert seen == {"seen": True}
