"""Every shipped experiment is run here, so that none can rot."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.packaging.test_shipped import EXPERIMENTS, ROOT, marked
from tests.tables import at_random, space_in
from tuner import restore_best, run
from tuner.spec.document import read_yaml

TINY: dict[str, dict[str, object]] = {
    "shapes10": {"search_space.width.choice": [4]},
    "cifar10": {"params.dataset": "shapes10", "search_space.width.choice": [4]},
    "whitened": {"params.dataset": "shapes10", "params.width": 4, "params.compile": False},
    "shapes5": {"params.data": "shapes5_few"},
    "mixture": {"params.folds": 2, "search_space.trees.choice": [5]},
}
"""Changes that make a data set, or what is trained on it, small."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where data sets are, which are made once."""
    return tmp_path_factory.mktemp("data")


@pytest.mark.usefixtures("ray_session")
@pytest.mark.filterwarnings("default")  # of the frameworks
@pytest.mark.parametrize("path", marked(EXPERIMENTS, pytest.mark.pairings, need_an_extra=pytest.mark.integrations))
def test_each_experiment_runs(path: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DATA", str(data))
    spec = read_yaml(path.read_text(), path.name).value
    params, scheduler = spec["params"], spec.get("scheduler", {})
    tiny: dict[str, object] = {"budget.trials": 2, "resources.max_concurrent_trials": 1}
    length = 2 if "folds" in params else 1
    if "epochs" in params:
        tiny |= {"params.epochs": 1}
    if "max_t" in scheduler:
        tiny |= {"scheduler.max_t": length}
    if isinstance(scheduler.get("grace_period"), int):
        tiny |= {"scheduler.grace_period": length}
    if "table" in params:
        at_random(space_in(ROOT / spec["search_space"])).to_parquet(tmp_path / "table.parquet")
        tiny |= {"params.table": str(tmp_path / "table.parquet")}
    if params.get("data") in ("reviews", "shapes5", "shapes5_few"):
        tiny |= {"params.data_dir": str(data)}
    tiny |= TINY.get(params.get("network") or params.get("data") or params.get("dataset"), {})
    results = run(path, tiny, storage=tmp_path, name="run", say=lambda text: None)
    assert results.count("completed") == 2
    metric = results.metric
    is_validated_again = metric != "score"  # a cross-validation is not
    best = restore_best(results, test=not is_validated_again)
    if not is_validated_again:
        assert best.test is not None
        assert best.test["test_accuracy"] > 0.4
    else:
        assert best.validation[metric] == pytest.approx(results.value(results.best.best), abs=1e-6)


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize(
    ("module", "fixed"), [("digits", {"epochs": 2}), ("cifar", {"epochs": 1, "dataset": "shapes10", "width": 4})]
)
def test_a_trainable_is_plain_ray_tune(data: Path, tmp_path: Path, module: str, fixed: dict) -> None:
    from ray import tune

    if module == "cifar":
        fixed = fixed | {"data_dir": str(data)}
    tuner = tune.Tuner(
        importlib.import_module(f"trainables.{module}").train,
        param_space={**fixed, "lr": tune.grid_search([0.01, 0.1])},
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    )
    results = tuner.fit()
    assert results.num_errors == 0
    assert results.get_best_result("val_accuracy", "max").checkpoint is not None
