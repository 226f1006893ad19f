"""What `auto` chooses, and how the plan tells it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.plan.test_plan import CPUS
from tuner.errors import InputError
from tuner.experiment.reader import load_experiment
from tuner.plan.describe import description
from tuner.plan.plan import Plan
from tuner.plan.planner import make_plan
from tuner.schedulers import Asha
from tuner.searchers import Auto, Gp, SearchProblem
from tuner.searchers.optuna.searcher import OptunaSearcher
from tuner.simulator import CurveFunction, simulate
from tuner.spec.configuration import Configuration
from tuner.testing import space_of

SPACE = {"lr": {"loguniform": [1e-4, 0.1]}}
BASE: dict[str, Any] = {
    "trainable": "t_chosen.py:train",
    "search_space": SPACE,
    "objective": {"metric": "loss", "mode": "min"},
}
PBT = {"kind": "pbt", "time_attr": "epoch", "max_t": 9, "perturbation_interval": 3}
TWO = [{"metric": "loss", "mode": "min"}, {"metric": "size", "mode": "min"}]


@pytest.fixture(autouse=True)
def folder(user_folder: Path) -> None:
    (user_folder / "t_chosen.py").write_text("def train(config): raise SystemExit('a trial ran')\n")


def planned(**extra: Any) -> Plan:
    return make_plan(load_experiment(BASE | extra), CPUS)


def flat(configurations: Sequence[Configuration]) -> tuple[Any, Any]:
    rates = np.array([[configuration["lr"]] for configuration in configurations])
    return rates + np.zeros(3), np.arange(1, 4) + 0 * rates


@pytest.mark.parametrize(
    ("extra", "kind", "reason"),
    [
        ({}, "gp", "it learns from every report"),
        ({"search": {"kind": "auto", "seed": 3}}, "gp", "it learns from every report"),
        ({"search_space": {"lr": {"choice": [0.1, 0.2]}}}, "gp", "it learns from every report"),
        ({"objective": TWO}, "optuna", "gp searches for one objective at once, and there are 2"),
        ({"objective": [{**one, "weight": 0.5} for one in TWO]}, "gp", "it learns from every report"),
        ({"search_space": {"lr": {"grid_search": [0.1, 0.2]}}}, "random", "lr: grid_search belongs to search.kind"),
        ({"search_space": {"lr": 0.1}}, "random", "the search space has nothing to choose"),
        (
            {"search_space": {"lr": 0.1}, "scheduler": {"kind": "bohb", "time_attr": "epoch", "max_t": 9}},
            "bohb",
            "the search space has nothing to choose",
        ),
        ({"scheduler": PBT}, "random", "pbt changes configurations itself"),
        ({"scheduler": {"kind": "bohb", "time_attr": "epoch", "max_t": 9}}, "bohb", "bohb's brackets feed bohb's"),
    ],
)
def test_the_first_search_that_can_do_it_is_chosen(extra: dict[str, Any], kind: str, reason: str) -> None:
    plan = planned(**extra)
    assert plan.spec.search.kind == kind
    assert plan.search_reason.startswith(reason)
    assert f"chosen by auto: {plan.search_reason}" in [text for _, text in description(plan)]
    assert plan.as_json()["search"] == kind


def test_its_options_are_those_of_the_choice() -> None:
    given = {"kind": "auto", "seed": 3, "points_to_evaluate": [{"lr": 0.01}]}
    search = planned(search=given, search_space=SPACE).spec.search
    assert (search.seed, search.points_to_evaluate) == (3, ({"lr": 0.01},))


def test_a_named_search_has_no_reason() -> None:
    plan = planned(search={"kind": "random", "seed": 0})
    assert (plan.spec.search.kind, plan.search_reason) == ("random", "")


@pytest.mark.parametrize(
    "extra",
    [
        {"search": {"kind": "auto", "from_runs": ["runs/a"]}, "search_space": {"lr": {"grid_search": [1, 2]}}},
        {"objective": TWO, "scheduler": {"kind": "bohb", "time_attr": "epoch", "max_t": 9}},
    ],
)
def test_what_no_search_can_do_is_told_of_gp_and_names_no_way_in_a_circle(extra: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        planned(**extra)
    assert "auto" not in str(caught.value)


def test_it_searches_without_a_plan_too() -> None:
    task = SearchProblem(space_of(SPACE), ("min", "max"), 10, None, 0)
    assert isinstance(Auto().build(task), OptunaSearcher)
    curves = CurveFunction("flat", space_of(SPACE), (1, 2, 3), flat)
    found, gp = (simulate(search, Asha(max_t=3), curves, "min", trials=12, seed=1) for search in (Auto(), Gp()))
    assert found.decisions == gp.decisions
