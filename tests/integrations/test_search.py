"""The integrations in searches on Ray: paused, killed, handed from trial to trial, in several processes, restored."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.integrations.frameworks import FRAMEWORKS, OF_THE_PROCESS, Framework, timeless
from tests.rungs import promotion
from tuner.actions.replay import replay
from tuner.errors import InputError
from tuner.runs.restore import best_model
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("ray_session"),
    pytest.mark.filterwarnings("default"),  # of the frameworks
]


def marked(frameworks: list[Framework]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("framework", frameworks, ids=lambda framework: framework.name)


def search(framework: Framework, folder: Path, space: dict[str, Any], name: str = "run", **keys: Any) -> ResultSet:
    params = {"lr": 0.05, "epochs": 4, "killed": False, **keys.pop("params", {})}
    params = {name: value for name, value in params.items() if name not in space}
    return tuner.run(
        {
            "trainable": "tests.integrations.killed:train",
            "params": {"framework": framework.name, "marks": str(folder), **params},
            "search_space": space,
            "objective": {"metric": framework.metric, "mode": framework.mode},
            "search": {"kind": "grid", "seed": 0},
            **keys,
            "resources": {"gpu": 0, "max_concurrent_trials": 1, **keys.get("resources", {})},
        },
        storage=folder,
        name=name,
        say=lambda text: None,
    )


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Tracking by a server of the test's own that also registers the best model."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return {"mlflow": {"uri": uri, "register": "winner"}}


def check_registered(results: ResultSet, uri: str) -> None:
    """The registry has the model of the best trial, which the framework's own flavor loads."""
    from mlflow import MlflowClient, models

    (version,) = MlflowClient(uri).search_model_versions("name='winner'")
    assert results.best is not None
    assert version.tags["trial"] == results.best.id
    (flavor,) = set(models.get_model_info("models:/winner/1").flavors) - {"python_function"}
    loaded = importlib.import_module(f"mlflow.{flavor}").load_model("models:/winner/1")
    assert type(loaded) is type(best_model(results)[1])


def reported(trial: Trial) -> list[dict[str, Any]]:
    return [timeless(report.metrics) for report in trial.reports]


@marked([f for f in FRAMEWORKS if f.saves_always and not f.trains_in_groups and f.name != "trl"])  # others: in groups
def test_a_killed_trial_continues_to_the_bit(framework: Framework, tmp_path: Path) -> None:
    results = search(framework, tmp_path, {"killed": {"grid_search": [False, True]}})
    whole, killed = results.trials
    assert (tmp_path / framework.name).exists()
    assert [failure.kind for failure in killed.failures] == ["process died"]
    assert [report["epoch"] for report in reported(whole)] == [1, 2, 3, 4]
    assert reported(killed) == reported(whole)


@marked([f for f in FRAMEWORKS if f.saves_always])
def test_paused_trials_continue_and_the_best_is_restored_replayed_and_registered(
    framework: Framework, tmp_path: Path, registry: dict[str, Any]
) -> None:
    """In one process after the other: a trial that is paused, or stopped, leaves nothing that disturbs a later one."""
    results = search(
        framework,
        tmp_path,
        {"lr": {"grid_search": [0.001, 0.01, 0.05, 0.2]}},
        scheduler=promotion(max_t=4, reduction_factor=2),
        tracking=registry,
    )
    assert {trial.status for trial in results.trials} == {"completed", "stopped"}
    for trial in results.trials:
        assert [report["epoch"] for report in reported(trial)] == list(range(1, trial.steps + 1))
        assert trial.failures == []
    assert max(trial.steps for trial in results.trials) == 4
    assert results.best is not None
    best = tuner.restore_best(results, test=True)
    assert best.test is not None
    assert list(best.test) == [framework.score]
    outcome = replay(results, results.best)
    assert (outcome.ending, outcome.failure) == ("", "")
    assert [d for d in outcome.differences if not d.metric.endswith(OF_THE_PROCESS)] == []
    check_registered(results, registry["mlflow"]["uri"])


@marked([f for f in FRAMEWORKS if f.precisions])
def test_a_process_is_handed_to_a_trial_of_another_precision(framework: Framework, tmp_path: Path) -> None:
    first, second = framework.precisions
    precisions = {"precision": {"grid_search": [first, second]}}
    results = search(framework, tmp_path, precisions)
    fresh = search(framework, tmp_path, precisions, "new", resources={"fresh_process": True})
    assert [trial.status for trial in results.trials] == ["completed"] * 2
    assert [reported(trial) for trial in results.trials] == [reported(trial) for trial in fresh.trials]
    assert reported(results.trials[0]) != reported(results.trials[1])


@marked([f for f in FRAMEWORKS if f.trains_in_groups])
def test_two_processes_train_one_model_and_continue_to_the_bit(framework: Framework, tmp_path: Path) -> None:
    results = search(
        framework,
        tmp_path,
        {"killed": {"grid_search": [False, True]}},
        params={"epochs": 3},
        resources={"workers": 2},
    )
    whole, killed = results.trials
    assert [trial.status for trial in results.trials] == ["completed"] * 2
    assert (tmp_path / framework.name).exists()
    assert len(killed.failures) == 1
    assert [report["epoch"] for report in reported(whole)] == [1, 2, 3]
    assert reported(killed) == reported(whole)
    checkpoint = tmp_path / "run" / str(whole.reports[-1].checkpoint)
    states = [path.name for path in checkpoint.iterdir() if path.name.startswith(("rng", "random", "process"))]
    assert len(states) == framework.random_files


@marked([f for f in FRAMEWORKS if not f.saves_always])
def test_folds_are_a_fidelity_and_only_whole_trials_can_be_the_best(
    framework: Framework, tmp_path: Path, registry: dict[str, Any]
) -> None:
    results = search(
        framework,
        tmp_path,
        {"lr": {"grid_search": [0.01, 0.02, 0.05, 0.09]}},
        scheduler={"kind": "asha", "grace_period": 1, "time_attr": "fold", "max_t": 4, "reduction_factor": 2},
        tracking=registry,
    )
    assert {trial.status for trial in results.trials} == {"completed", "stopped"}
    assert results.best is not None
    assert results.best.best is not None
    assert results.best.best.metrics["fold"] == 4
    assert list(tuner.restore_best(results, test=True).test or ()) == [framework.score]
    check_registered(results, registry["mlflow"]["uri"])


@marked([f for f in FRAMEWORKS if not f.trains_in_groups and f.name != "trl"])
def test_a_framework_of_one_process_is_refused_in_several(framework: Framework, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"resources\.workers: 2, but \S+ trains this model in 1; .*take workers out"):
        search(framework, tmp_path, {"lr": {"grid_search": [0.05]}}, resources={"workers": 2})
