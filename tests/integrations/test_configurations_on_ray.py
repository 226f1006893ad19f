"""Searches on Ray whose trainable is a configuration: killed, paused, restored, replayed, extended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import tuner
from tests.integrations import hydra_toy, lightning_cli_toy
from tests.rungs import promotion
from tuner.actions.replay import replay
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("ray_session"),
    pytest.mark.filterwarnings("default"),  # of the frameworks
]


@pytest.fixture
def hydra_project(user_folder: Path) -> Iterator[Path]:
    hydra_toy.write_project(user_folder)
    yield user_folder
    OmegaConf.clear_resolver("square")  # of a module that this process forgets, as no process does by itself


def search(folder: Path, trainable: str, space: dict[str, Any], metric: str, **keys: Any) -> ResultSet:
    return tuner.run(
        {
            "trainable": trainable,
            "search_space": space,
            "objective": {"metric": metric, "mode": "min"},
            "search": {"kind": "grid", "seed": 0},
            "resources": {"gpu": 0, "max_concurrent_trials": 1},
            **keys,
        },
        storage=folder / "runs",
        name="run",
        say=lambda text: None,
    )


def reported(trial: Trial) -> list[dict[str, Any]]:
    return [dict(report.metrics) for report in trial.reports]


def test_a_killed_trial_of_hydra_continues_from_its_checkpoint(hydra_project: Path) -> None:
    space = {"killed": {"grid_search": [False, True]}}
    params = {"marks": str(hydra_project), "optimizer": {"lr": 0.5}}
    results = search(hydra_project, "hydra:conf/config.yaml", space, "loss", params=params)
    whole, killed = results.trials
    assert (hydra_project / "killed").exists()
    assert [failure.kind for failure in killed.failures] == ["process died"]
    assert [report["epoch"] for report in reported(whole)] == [1, 2, 3, 4]
    assert reported(killed) == reported(whole)


def test_groups_are_searched_in_one_process_and_the_best_is_restored_and_replayed(hydra_project: Path) -> None:
    results = search(
        hydra_project,
        "hydra:conf/config.yaml",
        {
            "defaults": {"optimizer": {"grid_search": ["sgd", "adam"]}},
            "optimizer": {"lr": {"grid_search": [0.25, 0.5]}},
        },
        "loss",
        params={"marks": str(hydra_project)},
        scheduler=promotion(max_t=4, reduction_factor=2),
    )
    assert [trial.failures for trial in results.trials] == [[]] * 4
    assert {trial.status for trial in results.trials} == {"completed", "stopped"}
    assert results.best is not None
    assert results.best.config == {"defaults": {"optimizer": "adam"}, "optimizer": {"lr": 0.5}}
    assert [report["loss"] for report in reported(results.best)] == [0.25, 0.0625, 0.015625, 0.00390625]
    assert tuner.restore_best(results, test=True).test == {"test_loss": 0.0625 + 0.5}
    folder = hydra_project / "runs" / "run" / "ray" / results.best.id
    assert "- optimizer='adam'" in (folder / ".hydra" / "overrides.yaml").read_text()
    outcome = replay(results, results.best)
    assert (outcome.ending, outcome.failure, outcome.differences) == ("", "", ())


def test_a_search_from_python_is_extended(hydra_project: Path) -> None:
    made = tuner.Search(
        "hydra:conf/config.yaml",
        {"optimizer": {"lr": {"uniform": [0.1, 0.9]}}},
        objective=tuner.Objective(metric="loss", mode="min"),
        params={"marks": str(hydra_project), "epochs": 1},
        budget=tuner.Budget(trials=1),
    )
    done = made.run(storage=hydra_project / "runs", name="run")
    assert len(done.extend(trials=1).trials) == 2


# --- LightningCLI ----------------------------------------------------------------------------------------------------


@pytest.fixture
def lightning_project(user_folder: Path) -> Path:
    lightning_cli_toy.write_project(user_folder)
    return user_folder


def test_a_killed_trial_of_lightning_continues_to_the_bit(lightning_project: Path) -> None:
    space = {"model": {"init_args": {"kill": {"grid_search": [None, str(lightning_project / "killed")]}}}}
    results = search(lightning_project, "lightning:config.yaml", space, "val_loss")
    whole, killed = results.trials
    assert (lightning_project / "killed").exists()
    assert [failure.kind for failure in killed.failures] == ["process died"]
    assert [report["epoch"] for report in reported(whole)] == [1, 2, 3, 4]
    assert reported(killed) == reported(whole)


def test_paused_trials_of_lightning_continue_and_the_best_is_tested_and_replayed(lightning_project: Path) -> None:
    results = search(
        lightning_project,
        "lightning:config.yaml",
        {"model": {"init_args": {"lr": {"grid_search": [0.001, 0.01, 0.05, 0.2]}}}},
        "val_loss",
        scheduler=promotion(max_t=4, reduction_factor=2),
    )
    assert [trial.failures for trial in results.trials] == [[]] * 4
    assert {trial.status for trial in results.trials} == {"completed", "stopped"}
    assert results.best is not None
    best = tuner.restore_best(results, test=True)
    assert best.test is not None
    assert list(best.test) == ["test_accuracy"]
    assert best.validation == {"val_loss": pytest.approx(best.recorded["val_loss"], abs=1e-6)}
    outcome = replay(results, results.best)
    assert (outcome.ending, outcome.failure, outcome.differences) == ("", "", ())


def test_two_processes_train_one_model_of_lightning(lightning_project: Path) -> None:
    results = search(
        lightning_project,
        "lightning:config.yaml",
        {"model": {"init_args": {"lr": {"grid_search": [0.01]}}}},
        "val_loss",
        params={"trainer": {"max_epochs": 2}},
        resources={"gpu": 0, "workers": 2},
    )
    assert [trial.status for trial in results.trials] == ["completed"]
    assert [report["step"] for report in reported(results.trials[0])] == [5, 10]  # 300 of 600 examples each
