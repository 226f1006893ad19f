"""Fresh seeds: which configurations are trained again and how, and what their values say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.documents import conforms
from tests.runs.test_results import new_run, report, trial
from tuner.actions.confirm import Confirmation, Confirmed, compare
from tuner.actions.intervals import Interval, interval
from tuner.actions.retraining import Retraining, retraining
from tuner.cli.confirm import _lines
from tuner.errors import InputError, NoUsableResult
from tuner.runs.results import ResultSet
from tuner.spec.objective import Objective

DIGITS = {
    "lr": {"loguniform": [1e-4, 1.0]},
    "optimizer": {"choice": ["sgd", "adam"]},
    "momentum": {"uniform": [0.5, 0.99], "when": {"optimizer": ["sgd"]}},
}
ASHA = {"kind": "asha", "time_attr": "epoch", "max_t": 4, "grace_period": 1}


def finished(folder: Path, space: dict[str, Any] | None = None, **spec: Any) -> ResultSet:
    results = new_run(folder)
    results.provenance |= {"interrupted": False, "roots": [str(folder.parent)]}
    results.spec |= {"trainable": "trainables.digits:train", "params": {"epochs": 4}, "scheduler": ASHA}
    results.spec |= {"search_space": space or DIGITS, **spec}
    return results


# --- statistics --------------------------------------------------------------------------------------------------


def test_an_interval_is_student_s() -> None:
    found = interval([9.1, 10.2, 9.7, 10.4, 9.6])  # t(4) = 2.776, s = 0.5148
    assert (found.mean, found.n) == (pytest.approx(9.8), 5)
    assert found.half_width == pytest.approx(2.7764451 * 0.5147815 / math.sqrt(5), rel=1e-6)
    assert str(found) == "9.80 ± 0.64"
    assert not found.holds_zero
    assert interval([-1.0, 1.0, 0.1]).holds_zero
    assert interval([0.5]) == Interval(0.5, None, 1)
    assert str(interval([0.5])) == "0.5 (n=1: no interval)"
    assert str(interval([0.5, 0.5])) == "0.5 ± 0"
    assert str(interval([100.0, 300.0])) == "200 ± 1271"


def confirmed(number: int, searched: float, *values: float, seeds: int = 1) -> Confirmed:
    best = dict(enumerate(values, seeds))
    return Confirmed(f"id{number}", number, searched, 3, best, best, {})


def test_the_search_is_said_to_be_too_good_by_what_its_seed_gave_it() -> None:
    lucky, steady = confirmed(1, 0.95, 0.90, 0.91, 0.89), confirmed(2, 0.93, 0.925, 0.93, 0.935)
    found = Confirmation("r", "f", Objective(metric="acc", mode="max"), (1, 2, 3), (steady, lucky))
    assert (found.winner, found.searched) == (steady, lucky)
    optimism = found.optimism(lucky)
    assert optimism is not None
    assert optimism.mean == pytest.approx(0.05)
    assert not optimism.holds_zero
    assert found.optimism(steady).holds_zero  # type: ignore[union-attr]
    lower = Confirmation("r", "f", Objective(metric="loss", mode="min"), (1, 2), (confirmed(1, 0.1, 0.2, 0.3),))
    assert lower.optimism(lower.winner).mean == pytest.approx(0.15)  # type: ignore[union-attr]


def test_a_tie_is_told_by_pairs_of_the_same_seed() -> None:
    """Values that vary from seed to seed much more than they differ."""
    winner = confirmed(1, 0.9, 0.50, 0.70, 0.90)
    close = confirmed(2, 0.9, 0.49, 0.71, 0.89)
    worse = confirmed(3, 0.9, 0.48, 0.68, 0.88001)
    partly = confirmed(4, 0.9, 0.6, seeds=3)
    none, apart = confirmed(5, 0.9), confirmed(6, 0.9, 0.1, 0.2, seeds=4)
    found = Confirmation(
        "r", "f", Objective(metric="acc", mode="max"), (1, 2, 3), (winner, close, worse, partly, none, apart)
    )
    assert [found.ties(c) for c in found.configurations] == [False, True, False, True, False, True]
    assert found.behind(worse).mean == pytest.approx(0.02, abs=1e-4)  # type: ignore[union-attr]
    assert found.behind(partly) == Interval(pytest.approx(0.3), None, 1)
    assert found.behind(none) is None
    told = conforms("confirm", json.dumps(found.as_json()))
    assert [c["tie"] for c in told["configurations"]] == [False, True, False, True, False, True]
    assert told["configurations"][1]["intervals"]["behind"]["n"] == 3


def test_a_terminal_shows_the_means_the_optimism_and_the_ties() -> None:
    seeds = (1, 2, 3)
    winner = Confirmed("a", 4, 0.91, 9, {1: 0.90, 2: 0.92, 3: 0.91}, {1: 0.9, 2: 0.9, 3: 0.9}, {"t": {1: 0.8, 2: 0.9}})
    lucky = Confirmed(
        "b", 7, 0.97, 27, {1: 0.89, 2: 0.90, 3: 0.91}, {1: 0.88, 2: 0.89, 3: 0.9}, {"t": {1: 0.7, 2: 0.7}}
    )
    worse = Confirmed("c", 2, 0.90, 27, {1: 0.70, 2: 0.72}, {1: 0.7, 2: 0.7}, {})
    none = Confirmed("d", 9, 0.89, 27, {}, {}, {})
    found = Confirmation("r", "f", Objective(metric="acc", mode="max"), seeds, (winner, lucky, worse, none))
    assert list("\n".join(_lines(found)).splitlines()) == [
        "max acc: mean ± 95 % interval over seeds 1, 2, 3, which the search did not use",
        "trial  search  best report        last report    behind #4",
        "#4     0.91    0.910 ± 0.025      0.9 ± 0",
        "#7     0.97    0.900 ± 0.025      0.890 ± 0.025  0.010 ± 0.025 (tie)",
        "#2     0.9     0.71 ± 0.13 (n=2)  0.7 ± 0 (n=2)  0.2 ± 0",
        "#9     0.89    no result          no result",
        "",
        "trial  t",
        "#4     0.85 ± 0.64 (n=2)",
        "#7     0.7 ± 0 (n=2)",
        "#2     no result",
        "#9     no result",
        "",
        "best report: its epoch is chosen on validation data, as in the search; last report: it is not;",
        "test: of the best report; nothing was chosen by it, so that this is the number for new data",
        "optimism: the search said 0.97 for trial #7 (step 27); with fresh seeds it is 0.070 ± 0.025 worse: the search"
        " was too optimistic",
        "a tie: #4, #7 cannot be told apart with these seeds; #2 worse",
    ]


# --- what is trained again ---------------------------------------------------------------------------------------


def searched(folder: Path, **spec: Any) -> ResultSet:
    results = finished(folder, **spec)
    trial(results, 0.7, config={"lr": 0.1, "optimizer": "sgd", "momentum": 0.9})
    trial(results, 0.9, config={"lr": 0.01, "optimizer": "adam"})
    trial(results, 0.8, config={"lr": 0.2, "optimizer": "sgd", "momentum": 0.6})
    trial(results, 0.85, config={"lr": 0.01, "optimizer": "adam"})
    return results


def test_the_best_configurations_run_with_the_same_seeds_to_the_full_budget(tmp_path: Path) -> None:
    spec = {"constraints": ["lr < 1"], "budget": {"trials": 4, "wall_clock": 9.0}, "resources": {"cpu": 2}}
    plan = retraining(searched(tmp_path / "r", **spec), 2, 3)
    assert [candidate.number for candidate in plan.candidates] == [2, 3]  # 4 has the configuration of 2
    assert plan.seeds == (1, 2, 3)  # the search had the Config's own 0
    again = plan.experiment.spec
    assert again.search.points_to_evaluate == tuple(
        config | {"seed": seed}
        for seed in (1, 2, 3)
        for config in ({"lr": 0.01, "optimizer": "adam"}, {"lr": 0.2, "optimizer": "sgd", "momentum": 0.6})
    )
    assert not any(again.search.validate_space(again.search_space))
    assert all(again.search_space.contains(point) for point in again.search.points_to_evaluate)
    assert (again.scheduler.rungs(), again.scheduler.fidelity) == ((4,), ("epoch", 4))
    assert (again.budget.trials, again.budget.wall_clock, again.checkpoints.keep_trials) == (6, None, 6)
    assert (again.resources.cpu, again.params, again.constraints) == (2, {"epochs": 4}, [])


@pytest.mark.parametrize(
    ("spec", "fused"),
    [
        ({"resources": {"fused": 4}}, 4),
        ({"repeat": {"over": "seed", "times": 5, "at_once": True}}, 5),
        ({"repeat": {"over": "seed", "times": 4}, "scheduler": {"kind": "fifo"}}, 1),
    ],
)
def test_seeds_train_as_one_model_if_the_search_had_a_way(spec: dict[str, Any], fused: int, tmp_path: Path) -> None:
    results = searched(tmp_path / "r", **{"trainable": "trainables.digits:train"} | spec)
    for one in results.trials:
        one.reports[-1].metrics["repetition"] = 5  # complete
    plan = retraining(results, 2, 2)
    again = plan.experiment.spec
    assert (again.resources.fused, again.repeat) == (fused, None)
    numbers = [point["lr"] for point in again.search.points_to_evaluate]
    assert numbers == ([0.01, 0.01, 0.2, 0.2] if fused > 1 else [0.01, 0.2, 0.01, 0.2])  # of one shape together


def test_without_max_t_the_trainable_ends_its_trials(tmp_path: Path) -> None:
    plan = retraining(searched(tmp_path / "r", scheduler={"kind": "fifo"}), 1, 2)
    assert plan.experiment.spec.scheduler.kind == "fifo"


def test_seeds_of_the_search_are_not_used_again(tmp_path: Path) -> None:
    results = finished(tmp_path / "r", {"lr": {"uniform": [0, 1]}, "seed": {"randint": [0, 9]}})
    for seed, value in ((1, 0.5), (3, 0.9), (0, 0.7)):
        trial(results, value, config={"lr": 0.5, "seed": seed})
    trial(results, 0.6, config={"lr": 0.1, "seed": 0})
    plan = retraining(results, 5, 3)
    assert [candidate.number for candidate in plan.candidates] == [2, 4]
    assert plan.seeds == (2, 4, 5)
    fixed = finished(tmp_path / "f", {"lr": {"uniform": [0, 1]}}, params={"epochs": 4, "seed": 1})
    trial(fixed, 0.5, config={"lr": 0.5})
    plan = retraining(fixed, 1, 2)
    assert (plan.seeds, plan.experiment.spec.params) == ((0, 2), {"epochs": 4})


def test_lists_and_computed_values_are_what_they_were(user_folder: Path) -> None:
    Path("mine.py").write_text(
        "from ray import tune\n"
        "space = {'layers': [tune.choice([8, 16]), 4], 'lr': tune.uniform(0, 1),\n"
        "         'twice': tune.sample_from(lambda spec: spec.config.lr * 2)}\n"
        "def train(config): ...\n"
    )
    spec = {"trainable": "mine:train", "params": {"seed": 0}, "search_space": "mine:space"}
    results = finished(user_folder / "r", **spec)
    config = {"layers": [16, 4], "lr": 0.25, "twice": 0.5}
    trial(results, 0.5, config=config)
    plan = retraining(results, 1, 2)
    assert plan.experiment.spec.search.points_to_evaluate == tuple(config | {"seed": seed} for seed in (1, 2))


def refused(results: ResultSet, **options: int) -> str:
    with pytest.raises(InputError) as caught:
        retraining(results, **{"top": 1, "seeds": 2} | options)
    return str(caught.value)


def test_what_cannot_be_trained_again_is_said(user_folder: Path) -> None:
    Path("mine.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Config:\n    lr: float = 0.1\n"
        "def typed(config: Config): ...\ndef plain(config): ...\n"
    )
    typed = searched(user_folder / "t", trainable="mine:typed", params={})
    assert "mine:typed takes no parameter 'seed': fresh seeds would change nothing; add seed: int = 0" in refused(typed)
    plain = searched(user_folder / "p", trainable="mine:plain")
    assert "mine:plain takes a plain dict, and the run gave it no 'seed'" in refused(plain)
    assert "write seed: 0 into params" in refused(plain)
    assert "give at least 1 and 2" in refused(searched(user_folder / "s"), seeds=1)
    assert "no trial has a result" in refused(finished(user_folder / "n"))
    running = searched(user_folder / "i")
    running.provenance["interrupted"] = True
    assert "has not come to its end" in refused(running)
    pbt = {"kind": "pbt", "max_t": 4, "perturbation_interval": 2, "mutate": ["lr"]}
    assert "pbt changed the configurations of its trials" in refused(searched(user_folder / "b", scheduler=pbt))


# --- what came of it ---------------------------------------------------------------------------------------------


def retrained(folder: Path, plan: Retraining, values: dict[tuple[int, int], list[float]]) -> ResultSet:
    """``values``: the reports by (number of the candidate, seed)."""
    again = new_run(folder)
    for point in plan.experiment.spec.search.points_to_evaluate:
        made = trial(again, config=dict(point))
        candidate = plan.candidate(made)
        assert candidate is not None
        for value in values[candidate.number, point["seed"]]:
            new = report(made, value)
            made.best = new if made.best is None or again.value(made.best) < value else made.best
    return again


def test_best_and_last_reports_are_taken_by_configuration_and_seed(tmp_path: Path) -> None:
    results = searched(tmp_path / "r")
    plan = retraining(results, 2, 2)
    values = {(2, 1): [0.8, 0.7], (2, 2): [], (3, 1): [0.8, 0.81], (3, 2): [0.9, 0.85]}
    found = compare(results, plan, retrained(tmp_path / "a", plan, values), test=False)
    assert [c.number for c in found.configurations] == [3, 2]
    assert found.winner.best == {1: 0.81, 2: 0.9}
    assert found.winner.last == {1: 0.81, 2: 0.85}
    assert found.configurations[1].best == {1: 0.8}
    assert (found.searched.number, found.searched.searched) == (2, 0.9)
    with pytest.raises(NoUsableResult, match="no trial has a result"):
        compare(results, plan, retrained(tmp_path / "b", plan, {key: [] for key in values}), test=False)


def test_configurations_whose_trials_break_a_limit_come_last(tmp_path: Path) -> None:
    results = searched(tmp_path / "r")
    plan = retraining(results, 2, 2)
    values = {(2, 1): [0.7], (2, 2): [0.75], (3, 1): [0.95], (3, 2): [0.8]}
    again = retrained(tmp_path / "a", plan, values)
    again.spec["outcome_constraints"] = [f"{again.metric} <= 0.9"]
    found = compare(results, plan, again, test=False)
    assert [c.number for c in found.configurations] == [2, 3]
    assert found.configurations[1].best == {2: 0.8}
    assert found.configurations[1].last == {1: 0.95, 2: 0.8}
    none = retrained(tmp_path / "b", plan, values)
    none.spec["outcome_constraints"] = [f"{none.metric} <= 0.1"]
    with pytest.raises(NoUsableResult, match=r"<= 0\.1"):
        compare(results, plan, none, test=False)
