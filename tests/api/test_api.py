"""The public face in Python: one specification in two notations, and objects that show themselves."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from ray import tune

import tuner
from tests.hostile.whole import made as make_run
from tuner.errors import InputError
from tuner.spec.space import python_only

ROOT = Path(__file__).parents[2]


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": config["x"]})


def search(trainable: Any = train, space: Any = None, **keys: Any) -> tuner.Search:
    keys = {"objective": tuner.minimize("loss"), "resources": tuner.Resources(gpu=0)} | keys
    return tuner.Search(trainable, {"x": tune.uniform(0, 1)} if space is None else space, **keys)


def test_python_and_yaml_give_the_same_specification(tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    file.write_text(
        f"""
name: mine
trainable: {__name__}:train
params: {{epochs: 9}}
search_space:
  lr: {{loguniform: [1e-4, 1e-1]}}
  model: {{width: {{choice: [16, 32]}}, depth: {{randint: [1, 5]}}}}
constraints: ["model.width >= model.depth"]
objective: [{{metric: acc, mode: max}}, {{metric: size, mode: min}}]
search: {{kind: optuna, sampler: nsga2, seed: 3}}
scheduler: {{kind: asha, time_attr: epoch, max_t: 27, grace_period: auto}}
budget: {{trials: 60, wall_clock: 2h}}
resources: {{gpu: 0.5}}
checkpoints: {{keep_trials: 3}}
failures: {{retries: 1}}
tracking: {{tensorboard: {{}}}}
"""
    )
    written = tuner.Search.from_yaml(file)
    spoken = tuner.Search(
        f"{__name__}:train",
        {
            "lr": tune.loguniform(1e-4, 1e-1),
            "model": {"width": tune.choice([16, 32]), "depth": tune.randint(1, 5)},
        },
        name="mine",
        params={"epochs": 9},
        constraints=["model.width >= model.depth"],
        objective=[tuner.maximize("acc"), tuner.minimize("size")],
        searcher=tuner.searchers.Optuna(sampler="nsga2", seed=3),
        scheduler=tuner.schedulers.Asha(time_attr="epoch", max_t=27, grace_period="auto"),
        budget=tuner.Budget(trials=60, wall_clock="2h"),
        resources=tuner.Resources(gpu=0.5),
        checkpoints=tuner.Checkpoints(keep_trials=3),
        failures=tuner.Failures(retries=1),
        tracking=tuner.Tracking(tensorboard=tuner.TensorboardTracking()),
    )
    assert spoken.experiment.spec == written.experiment.spec
    spoken.to_yaml(tmp_path / "again.yaml")
    assert tuner.Search.from_yaml(tmp_path / "again.yaml").experiment.spec == written.experiment.spec
    written.to_yaml(tmp_path / "third.yaml")
    assert tuner.Search.from_yaml(tmp_path / "third.yaml").experiment.spec == written.experiment.spec


def test_overrides_of_a_file_are_written_too(tmp_path: Path) -> None:
    changed = tuner.Search.from_yaml(ROOT / "experiments/quickstart.yaml", {"budget.trials": 6})
    changed.to_yaml(tmp_path / "six.yaml")
    assert tuner.Search.from_yaml(tmp_path / "six.yaml").experiment.spec.budget.trials == 6


def test_a_dict_in_the_notation_of_the_file_is_read_as_such() -> None:
    space = {"optimizer": {"choice": ["sgd", "adam"]}, "momentum": {"uniform": [0, 1], "when": {"optimizer": "sgd"}}}
    parameters = search(space=space).experiment.spec.search_space.parameters
    assert [str(parameter.domain) for parameter in parameters] == ["choice [sgd, adam]", "uniform [0, 1]"]
    assert parameters[1].when


def test_a_function_of_a_module_keeps_its_name(user_folder: Path) -> None:
    elsewhere = user_folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.py").write_text("def train(config): ...\n")
    sys.path.insert(0, str(elsewhere))
    import mine  # type: ignore[import-not-found]

    made = search(mine.train)
    assert made.experiment.spec.trainable == "mine:train"
    assert made.experiment.pickles == ()
    assert made.experiment.roots == (user_folder, elsewhere)
    assert made.experiment.spec.name == "train"


def nested(x: float) -> Any:
    def inner(config: dict[str, Any]) -> None:
        tune.report({"loss": x})

    return inner


@pytest.mark.parametrize(
    ("trainable", "name"),
    [(nested(1.0), "inner"), (lambda config: None, "search"), (functools.partial(train), "search")],
)
def test_a_callable_without_a_name_is_pickled_with_its_source(trainable: Any, name: str, tmp_path: Path) -> None:
    made = search(trainable)
    assert made.experiment.spec.trainable == f"code/trainable.pkl:{name}"
    assert made.experiment.spec.name == name
    assert made.plan().trials == 20
    made.to_yaml(tmp_path / "search.yaml")
    again = tuner.Search.from_yaml(tmp_path / "search.yaml")
    assert again.plan().trials == 20
    if name == "inner":
        assert 'tune.report({"loss": x})' in (tmp_path / "code/trainable.py").read_text()


@dataclasses.dataclass
class Config:
    x: float = 0.0


def typed() -> Any:
    def inner(config: Config) -> None:
        tune.report({"loss": config.x})

    inner.__annotations__["config"] = "Config"
    return inner


def test_a_pickled_function_keeps_the_type_of_its_config(tmp_path: Path) -> None:
    search(typed()).to_yaml(tmp_path / "search.yaml")
    with pytest.raises(InputError, match=r"search_space.y: the trainable has no such parameter"):
        tuner.Search.from_yaml(tmp_path / "search.yaml", {"search_space.y": "{uniform: [0, 1]}"}).plan()


def test_a_pickle_of_another_user_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search(nested(1.0)).to_yaml(tmp_path / "search.yaml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    with pytest.raises(InputError, match=r"code/trainable.pkl was pickled by another user"):
        tuner.Search.from_yaml(tmp_path / "search.yaml").plan()


@pytest.mark.parametrize("damage", ["", "cut", "gone"])
def test_a_damaged_pickle_is_named(damage: str, tmp_path: Path) -> None:
    search(nested(1.0)).to_yaml(tmp_path / "search.yaml")
    file = tmp_path / "code/trainable.pkl"
    match damage:
        case "":
            file.write_bytes(b"")
        case "cut":
            file.write_bytes(file.read_bytes()[:-5])
        case "gone":
            file.unlink()
    with pytest.raises(InputError, match=r"code/trainable.pkl"):
        tuner.Search.from_yaml(tmp_path / "search.yaml").plan()


def test_what_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()

    def locked(config: dict[str, Any]) -> None:
        with lock:
            ...

    with pytest.raises(InputError, match=r"locked cannot be pickled .*lock"):
        search(locked)


def test_much_data_in_a_function_is_refused() -> None:
    data = os.urandom(21 * 2**20)

    def heavy(config: dict[str, Any]) -> None:
        print(len(data))

    with pytest.raises(InputError, match=r"heavy holds 21 MiB of data.*the limit is 20 MiB"):
        search(heavy)


def test_a_space_that_yaml_cannot_hold_is_pickled(tmp_path: Path) -> None:
    space = {"x": tune.uniform(0, 1), "y": tune.sample_from(lambda spec: spec.config.x * 2)}
    made = search(space=space)
    assert python_only(made.experiment.spec.search_space)
    made.to_yaml(tmp_path / "search.yaml")
    again = tuner.Search.from_yaml(tmp_path / "search.yaml")
    assert [p.path for p in again.experiment.spec.search_space.parameters] == [("x",), ("y",)]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"constraints": ["x >"]}, "constraints"),
        ({"objective": []}, "objective"),
        ({"name": "a/b"}, "name: 'a/b' cannot name a folder"),
        ({"space": {}}, "search_space"),
        ({"space": {"x": tune.uniform(1, 0)}}, "x"),
        ({"trainable": "train"}, "trainable"),
    ],
)
def test_wrong_arguments_are_named(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        search(**keys)


def test_a_plan_shows_itself() -> None:
    plan = search(budget=tuner.Budget(trials=7)).plan()
    assert re.search(r"^trials +7", str(plan), re.M)
    assert repr(plan) == str(plan)
    assert "<th" in plan._repr_html_()
    assert plan.as_json()["trials"] == 7
    assert plan.slots >= 1


def test_a_run_shows_itself_and_tells_its_best(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    run = tuner.load(tmp_path / "run")
    best = run.best_trial
    assert best is not None
    assert run.best_value == run.results.value(best.best)
    assert run.best_config == run.results.full_config(best)
    assert len(run.trials_dataframe()) == len(run.trials)
    assert list(run.trials_dataframe()["id"]) == [trial.id for trial in run.trials]
    assert len(run.reports_dataframe()) == sum(len(trial.reports) for trial in run.trials)
    shown = run._repr_html_()
    assert "<svg" in shown
    assert "<script" not in shown
    assert shown.count("<tr>") == 1 + 10
    assert "and 14 more" in shown
    assert run.folder in repr(run)


def test_every_public_name_is_there() -> None:
    for name in tuner.__all__:
        assert getattr(tuner, name) is not None
    assert set(tuner.__all__) <= set(dir(tuner))


def test_import_is_quick_and_light() -> None:
    code = "import sys, tuner; print([m for m in ('torch', 'ray', 'pandas', 'optuna', 'pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
