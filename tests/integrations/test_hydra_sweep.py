"""The search space of ``hydra.sweeper.params``, as Hydra's sweepers read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tuner
from tuner.errors import InputError
from tuner.trainable.hydra_sweep import space_of_sweep

pytestmark = pytest.mark.integrations


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("interval(1, 5)", {"uniform": [1.0, 5.0]}),
        ("tag(log, interval(1e-4, 1e-1))", {"loguniform": [1e-4, 1e-1]}),
        ("int(interval(1, 5))", {"randint": [1, 6]}),  # Ray's bound is exclusive, Hydra's is not
        ("tag(log, int(interval(1, 100)))", {"lograndint": [1, 101]}),
        ("range(1, 10)", {"randint": [1, 10]}),
        ("range(3)", {"randint": [0, 3]}),
        ("tag(log, range(1, 10))", {"lograndint": [1, 10]}),
        ("range(1, 10, 3)", {"choice": [1, 4, 7]}),
        ("range(0.0, 1.0, 0.25)", {"choice": [0.0, 0.25, 0.5, 0.75]}),
        ("a,b", {"choice": ["a", "b"]}),
        ("choice(1, 2.5, 'a b', true)", {"choice": [1, 2.5, "a b", True]}),
        ("null,a", {"choice": [None, "a"]}),
        ("[1,2],[3]", {"choice": [[1, 2], [3]]}),
        ("shuffle(a, b)", {"choice": ["a", "b"]}),
        (0.5, 0.5),
        ("adam", "adam"),
    ],
)
def test_a_sweep_is_a_domain(text: Any, domain: Any) -> None:
    assert space_of_sweep({"x": text}, (), "") == {"x": domain}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("glob(*)", "c.yaml: hydra.sweeper.params.x: glob(...) is not read here: list the choices, as in choice(a, b)"),
        (
            "range(0, 100000, 2)",
            "c.yaml: hydra.sweeper.params.x: a range of more than 10,000 values; write",
        ),
        ("choice(", "c.yaml: hydra.sweeper.params.x: "),
    ],
)
def test_another_sweep_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        space_of_sweep({"x": text}, (), "c.yaml: ")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_dotted_names_are_groups_and_config_groups_go_below_defaults_if_they_must() -> None:
    params = {
        "model": "a,b",
        "model.width": "1,2",
        "optimizer": "c,d",
        "net/encoder": "e,f",
        "train.lr": "interval(0,1)",
    }
    assert space_of_sweep(params, {"model", "optimizer", "net/encoder"}, "") == {
        "defaults": {"model": {"choice": ["a", "b"]}, "net": {"encoder": {"choice": ["e", "f"]}}},
        "model": {"width": {"choice": [1, 2]}},
        "optimizer": {"choice": ["c", "d"]},
        "train": {"lr": {"uniform": [0.0, 1.0]}},
    }


def test_two_parameters_at_one_place_are_refused() -> None:
    with pytest.raises(InputError, match=r"params.model.width: another parameter stands at its place"):
        space_of_sweep({"model": "1,2", "model.width": "1,2"}, (), "")


CONFIG = """
defaults:
  - model: ???
  - _self_
lr: 0.1
hydra:
  sweeper:
    params:
      lr: tag(log, interval(1e-4, 1e-1))
      model: mlp,linear
"""

TRAIN = """
import hydra


@hydra.main(config_path="conf", config_name="config", version_base="1.3")
def main(cfg):
    return cfg.lr
"""


SEARCH = "trainable: hydra:conf/config.yaml\nobjective: {metric: loss, mode: min}\n"


@pytest.fixture
def project(user_folder: Path) -> Path:
    (user_folder / "conf" / "model").mkdir(parents=True)
    (user_folder / "conf" / "config.yaml").write_text(CONFIG)
    for name in ("mlp", "linear"):
        (user_folder / "conf" / "model" / f"{name}.yaml").write_text(f"kind: {name}")
    (user_folder / "train.py").write_text(TRAIN)
    (user_folder / "search.yaml").write_text(SEARCH)
    return user_folder


def test_it_is_the_space_of_an_experiment_without_one(project: Path) -> None:
    shown = {str(p.path): str(p.domain) for p in tuner.validate("search.yaml").spec.search_space.parameters}
    assert shown == {"('lr',)": "loguniform [0.0001, 0.1]", "('model',)": "choice [mlp, linear]"}
    plan = tuner.validate("search.yaml", overrides=["search_space.lr.loguniform=[1e-3,1]"])
    assert str(plan.spec.search_space.parameters[0].domain) == "loguniform [0.001, 1]"


def test_the_space_of_the_experiment_goes_before(project: Path) -> None:
    (project / "search.yaml").write_text(f"{SEARCH}search_space: {{model: {{choice: [mlp]}}}}\n")
    plan = tuner.validate("search.yaml")
    assert [parameter.path for parameter in plan.spec.search_space.parameters] == [("model",)]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "mlp,linear",
            "glob(*)",
            "search.yaml:1:1: trainable: config.yaml: hydra.sweeper.params.model: glob(",
        ),
        (CONFIG.partition("hydra:")[2], " {}", "search.yaml:1:1: search_space: required, but missing"),
    ],
)
def test_a_space_that_cannot_be_read_is_one_error(project: Path, before: str, after: str, message: str) -> None:
    (project / "conf" / "config.yaml").write_text(CONFIG.replace(before, after))
    with pytest.raises(InputError) as error:
        tuner.validate("search.yaml")
    (problem,) = error.value.problems
    assert str(problem).startswith(message)
