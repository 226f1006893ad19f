"""``algorithms``: the table is what `validate` says."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from click.testing import CliRunner

from tuner.cli import cli
from tuner.experiment.reader import load_experiment
from tuner.experiment.spec import ExperimentSpec
from tuner.plan.compatibility import is_plug_in, kind, label, pairing_problems, schedulers, searches
from tuner.schedulers import AnyScheduler
from tuner.schedulers.base import SchedulerSpec
from tuner.searchers import AnySearch
from tuner.searchers.base import SearchSpec


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["algorithms", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_every_member_of_the_registries_is_there() -> None:
    for union, specs in ((AnySearch, searches()), (AnyScheduler, schedulers())):
        assert {type(spec) for spec in specs} == set(get_args(get_args(union)[0]))
        assert len({label(spec) for spec in specs}) == len(specs)
    assert {"random", "random sobol", "optuna tpe", "optuna nsga2"} <= {label(search) for search in searches()}


def experiment(search: SearchSpec, scheduler: SchedulerSpec) -> ExperimentSpec:
    written: dict[str, Any] = {
        "trainable": "t:train",
        "search_space": {"n": {"randint": [0, 9]}},
        "objective": {"metric": "loss", "mode": "min"},
    }
    spec = load_experiment(written).spec
    return spec.model_copy(update={"search": search, "scheduler": scheduler})


PAIRS = {(label(a), label(b)): (a, b) for a in searches() for b in schedulers()}


@pytest.mark.parametrize("pair", PAIRS, ids=" + ".join)
def test_the_table_says_what_validate_says(pair: tuple[str, str]) -> None:
    search, scheduler = PAIRS[pair]
    rows = {(row["search"], row["scheduler"]): row for row in json.loads(printed("--json"))["pairings"]}
    assert rows.keys() == PAIRS.keys()
    row = rows[pair]
    assert row["works"] == (row["why_not"] is None)
    if is_plug_in(search) or is_plug_in(scheduler):
        assert row["why_not"] == scheduler.incompatibility(kind(search))
        return
    found = dict(pairing_problems(experiment(search, scheduler)))
    assert found == ({} if row["works"] else {("scheduler", "kind"): row["why_not"]})


def test_what_a_search_refuses_is_what_it_says() -> None:
    can = {row["search"]: row for row in json.loads(printed("--json"))["searches"]}
    assert can["grid"]["refused_domains"] == ["uniform", "loguniform", "randn", "qrandn"]
    assert can["optuna tpe"]["refused_domains"] == ["grid_search"]
    assert can["random"]["refused_domains"] == []
    assert (can["random"]["max_objectives"], can["optuna cmaes"]["max_objectives"]) == (None, 1)
    assert can["optuna tpe"]["conditions"]
    assert (can["random"]["priors"], can["optuna qmc"]["priors"], can["grid"]["priors"]) == (True, False, False)
    assert [name for name, able in can.items() if not able.get("limits")] == ["optuna gp", "ray"]


def test_the_text_fits_a_terminal_and_explains_every_letter() -> None:
    text = printed()
    assert max(map(len, text.splitlines())) <= 80
    table, notes = text.split("What each search can do")[0].split("\n\n", 2)[1:]
    used = {word for line in table.splitlines() for word in line.split() if word.startswith("(")}
    assert used
    assert used == {line[:3] for line in notes.splitlines() if line.startswith("(")}


def test_one_reason_has_one_letter() -> None:
    table = printed().split("What each search can do")[0]
    rows = {line.split("  ")[0]: line.split() for line in table.splitlines()}
    *_, pb2, pbt, plug_in = rows["hyperopt"]
    assert pb2 == pbt != plug_in == "yes"
    assert rows["grid"][-2] == pbt
    assert rows["grid"][3] != pbt
