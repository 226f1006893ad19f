"""The shipped trainables that use a framework: exact after a resume, one model in two processes, plain Ray Tune."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.integrations.frameworks import timeless
from tests.one_trial import run_trial
from tests.rungs import promotion
from tuner.errors import InputError
from tuner.runs.results import ResultSet
from tuner.spec.user_imports import import_module

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),  # of the frameworks
]
NETWORKS = {
    "accelerate_images": "val_loss",
    "lightning_images": "val_loss",
    "text_lora": "eval_loss",
}
SMALL: dict[str, dict[str, Any]] = {
    "accelerate_images": {"epochs": 2, "batch_size": 50, "data": "shapes5_few"},
    "lightning_images": {"epochs": 2, "batch_size": 50, "data": "shapes5_few"},
    "text_lora": {"epochs": 2, "batch_size": 100},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where generated data is kept."""
    return str(tmp_path_factory.mktemp("data"))


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("name", NETWORKS)
def test_two_processes_train_the_model_of_one(name: str, data: str, tmp_path: Path) -> None:
    """To rounding: the gradients of the halves of a batch are added in another order; batch norm sees the halves."""
    metric = NETWORKS[name]
    params = {"data_dir": data, **SMALL[name], **({"dropout": 0.0} if name == "text_lora" else {})}
    results = tuner.run(
        {
            "trainable": f"trainables.{name}:train",
            "params": params,
            "search_space": {"lr": {"choice": [0.003]}},
            "objective": {"metric": metric, "mode": "min"},
            "search": {"kind": "random", "seed": 0},
            "budget": {"trials": 1},
            "resources": {"workers": 2, "cpu": 1, "gpu": 0},
        },
        storage=tmp_path,
        say=lambda text: None,
    )
    (trial,) = results.trials
    assert trial.failures == []
    two = [timeless(report.metrics) for report in trial.reports]
    one, error = run_trial(tmp_path, f"trainables.{name}:train", trial.config, (metric,), params=params)
    assert error == ""
    assert [report["epoch"] for report in two] == [report["epoch"] for report in one] == [1, 2]
    assert [report.get("step") for report in two] == [report.get("step") for report in one]
    assert two[-1][metric] == pytest.approx(one[-1][metric], rel=0.1)


@pytest.mark.usefixtures("ray_session")
def test_a_divided_model_is_paused_continued_and_put_together(tmp_path: Path) -> None:
    """FSDP2 in two processes: each has its part of the weights and of the optimizer, in the checkpoint too."""

    def search(name: str, rates: list[float], **scheduler: Any) -> ResultSet:
        return tuner.run(
            {
                "trainable": "trainables.accelerate_fsdp:train",
                "params": {"epochs": 4},
                "search_space": {"lr": {"grid_search": rates}},
                "objective": {"metric": "val_loss", "mode": "min"},
                "search": {"kind": "grid"},
                "scheduler": scheduler,
                # one trial at a time: beside a slow one, the free slot would let the worse trial continue too
                "resources": {"workers": 2, "cpu": 0.5, "gpu": 0, "max_concurrent_trials": 1},
            },
            storage=tmp_path,
            name=name,
            say=lambda text: None,
        )

    paused = search("paused", [0.001, 0.003], **(promotion(max_t=4, reduction_factor=2) | {"grace_period": 2}))
    assert [trial.steps for trial in paused.trials] == [2, 4]
    after = paused.trials[1]
    (whole,) = search("whole", [after.config["lr"]], kind="fifo").trials
    assert [trial.failures for trial in (whole, *paused.trials)] == [[]] * 3
    assert [timeless(report.metrics) for report in after.reports] == [
        timeless(report.metrics) for report in whole.reports
    ]
    best = tuner.restore_best(paused, test=True)
    folder = tmp_path / "paused" / "best" / "checkpoint" / "pytorch_model_fsdp_0"
    assert [file.name for file in sorted(folder.glob("*.distcp"))] == ["__0_0.distcp", "__1_0.distcp"]
    assert best.validation["val_loss"] == pytest.approx(paused.value(paused.best.best), abs=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_evaluate_repeats_the_report(name: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray import tune

    module = importlib.import_module(f"trainables.{name}")
    config = module.Config(data_dir=data, **SMALL[name])
    reports: list[dict[str, Any]] = []

    def take(metrics: dict[str, Any], checkpoint: tune.Checkpoint) -> None:
        reports.append(metrics)
        checkpoint.to_directory(str(tmp_path / "checkpoint"))

    monkeypatch.setattr("tuner.integrations.session.in_trial", lambda: True)
    monkeypatch.setattr("tuner.integrations.session.active", lambda: True)
    monkeypatch.setattr(tune, "report", take)
    module.train(config)
    scores = module.evaluate(config, tmp_path / "checkpoint", "val")
    for metric, value in scores.items():
        assert value == pytest.approx(reports[-1][metric], abs=1e-5)
    assert set(module.evaluate(config, tmp_path / "checkpoint")) == {"test_accuracy", "test_loss"}


@pytest.mark.parametrize("model", ["xgboost", "lightgbm", "forest"])
def test_folds_of_a_table_are_reported_one_by_one(model: str, tmp_path: Path) -> None:
    import pandas as pd

    rows = importlib.import_module("trainables.tabular").mixture(300)
    rows["colour"] = pd.Series(["red", "green", None] * 100)
    rows.to_csv(tmp_path / "table.csv", index=False)
    config = {"data": str(tmp_path / "table.csv"), "model": model, "trees": 5, "folds": 3, "scoring": "accuracy"}
    reports, error = run_trial(tmp_path, "trainables.tabular:train", config, ("score",))
    assert error == ""
    assert [report["fold"] for report in reports] == [1, 2, 3]
    assert 0.4 < reports[-1]["score"] < 1


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("tabular", {"data": "/no/such.csv"}, "/no/such.csv cannot be read"),
        ("tabular", {"data": "table.txt"}, "allowed: a .csv or .parquet file, or 'mixture'"),
        ("tabular", {"target": "price"}, "has no column 'price' (target); has x0, x1"),
        ("tabular", {"folds": 1}, "folds: 1, must be from 2 to"),
        ("tabular", {"model": "tree"}, "model: 'tree'; allowed: xgboost, lightgbm, forest"),
        ("text_lora", {"data": "/no/such.csv"}, "/no/such.csv cannot be read"),
        ("text_lora", {"data": "texts.txt"}, "allowed: a .csv or .jsonl file, or 'reviews'"),
        ("lightning_images", {"data": "/no/such"}, "is not a folder"),
    ],
)
def test_what_cannot_be_is_found_before_a_trial(name: str, options: dict[str, Any], text: str, data: str) -> None:
    module = importlib.import_module(f"trainables.{name}")
    where = {} if name == "tabular" else {"data_dir": data}
    with pytest.raises((ValueError, OSError)) as caught:
        module.prepare(module.Config(**{**where, **options}))
    assert text in str(caught.value)


def test_a_model_of_a_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.training import hub
    from tuner.training.data_errors import DataUnavailable

    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "https://localhost:9")
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    with pytest.raises(
        DataUnavailable, match=r"'a/b': neither a folder nor in the cache.*localhost:9 cannot be reached"
    ):
        hub.model_source("a/b")


@pytest.mark.parametrize(
    ("file", "package", "extra"),
    [("lightning_images", "lightning", "lightning"), ("accelerate_images", "accelerate", "accelerate")],
)
def test_a_missing_framework_is_named_with_its_extra(
    file: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(importlib.sys.modules, package, None)  # type: ignore[attr-defined]
    monkeypatch.delitem(importlib.sys.modules, f"trainables.{file}", raising=False)  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=rf"; pip install 'tuner\[{extra}\]'"):
        import_module(f"trainables.{file}", ())
