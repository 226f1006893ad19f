"""Every YAML in the repository is used here, so that none can rot."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from tests.tables import at_random, space_in
from tuner import restore_best, run
from tuner.spec.document import read_yaml
from tuner.spec.schema import experiment_schema

ROOT = Path(__file__).parents[2]
YAML = [p for p in sorted(ROOT.rglob("*.yaml")) if not {".venv", "runs", "build"} & set(p.relative_to(ROOT).parts)]
EXPERIMENTS = [path for path in YAML if path.is_relative_to(ROOT / "experiments")]


def test_there_are_some() -> None:
    assert len(EXPERIMENTS) >= 4
    assert {path.parent.name for path in YAML} >= {"experiments", "search_spaces"}


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_each_opens_with_its_command(path: Path) -> None:
    comments = [line for line in path.read_text().splitlines()[:2] if line.startswith("# python -m tuner ")]
    assert comments
    assert (ROOT / comments[0].split()[-1]).exists()


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.name)
def test_each_experiment_names_its_schema(path: Path) -> None:
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")


def test_the_schema_on_disk_is_the_schema_of_the_code() -> None:
    assert json.loads((ROOT / "experiments/schema.json").read_text()) == experiment_schema()


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.name)
def test_each_experiment_fits_the_schema(path: Path) -> None:
    import jsonschema

    value = read_yaml(path.read_text(), path.name).value
    assert list(jsonschema.Draft202012Validator(experiment_schema()).iter_errors(value)) == []
    wrong = value | {"schedular": {"kind": "asha"}}
    assert list(jsonschema.Draft202012Validator(experiment_schema()).iter_errors(wrong))


def test_every_search_space_is_used_by_an_experiment() -> None:
    used = [read_yaml(path.read_text(), path.name).value["search_space"] for path in EXPERIMENTS]
    spaces = {f"search_spaces/{path.name}" for path in YAML if path.parent.name == "search_spaces"}
    assert spaces <= {value for value in used if isinstance(value, str)}


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.name)
def test_each_experiment_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DATA", str(tmp_path / "data"))
    tiny: dict[str, object] = {"budget.trials": 2, "params.epochs": 1}
    spec = read_yaml(path.read_text(), path.name).value
    if "max_t" in spec.get("scheduler", {}):
        tiny |= {"scheduler.max_t": 1}
    if isinstance(spec.get("scheduler", {}).get("grace_period"), int):
        tiny |= {"scheduler.grace_period": 1}
    if "table" in spec["params"]:
        at_random(space_in(ROOT / spec["search_space"])).to_parquet(tmp_path / "table.parquet")
        tiny |= {"params.table": str(tmp_path / "table.parquet")}
    if "dataset" in spec["params"]:
        tiny |= {"params.dataset": "shapes10", "search_space.width.choice": [4]}
    results = run(path, tiny, storage=tmp_path, name="run", say=lambda text: None)
    assert results.count("completed") == 2
    best = restore_best(results)
    metric = results.metric
    assert best.validation[metric] == pytest.approx(results.value(results.best.best), abs=1e-6)


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize(
    ("module", "fixed"), [("digits", {"epochs": 2}), ("cifar", {"epochs": 1, "dataset": "shapes10", "width": 4})]
)
def test_a_trainable_is_plain_ray_tune(tmp_path: Path, module: str, fixed: dict) -> None:
    from ray import tune

    if module == "cifar":
        fixed = fixed | {"data_dir": str(tmp_path / "data")}
    tuner = tune.Tuner(
        importlib.import_module(f"trainables.{module}").train,
        param_space={**fixed, "lr": tune.grid_search([0.01, 0.1])},
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    )
    results = tuner.fit()
    assert results.num_errors == 0
    assert results.get_best_result("val_accuracy", "max").checkpoint is not None
