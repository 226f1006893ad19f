"""Limits on what trials report: how they are written, who wins under them, and what is shown where nobody does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import tuner
from tuner.actions.ask_tell import AskTell
from tuner.actions.export import optuna_study
from tuner.cli import cli
from tuner.errors import InputError
from tuner.runs.history import EventApplier
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report
from tuner.spec.objective import Objective, compared
from tuner.spec.outcome_constraints import OutcomeConstraint, is_infeasible, ranked_values, total_violation
from tuner.visualization.html import page
from tuner.visualization.run_comparison import race
from tuner.visualization.summary import summarize
from tuner.visualization.text_tables import headline, overview

finite = st.floats(-1e6, 1e6)
EXPERIMENT = """
trainable: t_limits.py:train
search_space: {x: {uniform: [0, 1]}}
objective: {metric: acc, mode: max}
outcome_constraints: %s
"""


# --- what a user writes ------------------------------------------------------------------------------------------


@given(st.sampled_from(["latency_ms", "val/gap", "p99.9"]), st.sampled_from(["<=", ">="]), finite)
def test_a_limit_comes_back_as_it_was_written(metric: str, sense: str, bound: float) -> None:
    limit = OutcomeConstraint.parse(f"{metric} {sense} {bound!r}")
    assert (limit.metric, limit.is_upper, limit.bound) == (metric, sense == "<=", bound)
    assert OutcomeConstraint.parse(str(limit)) == limit
    assert OutcomeConstraint.parse(f" {metric}{sense}{bound!r} ") == limit


def test_a_limit_is_kept_to_the_last_digit(tmp_path: Path) -> None:
    with begun(tmp_path, 1, "size <= 1234567"):
        assert "size <= 1234567" in (tmp_path / "q/experiment.yaml").read_text()


@pytest.fixture
def folder(user_folder: Path) -> Path:
    (user_folder / "t_limits.py").write_text("def train(config): raise SystemExit('a trial ran')\n")
    return user_folder


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("[latency_ms < 10]", '"latency_ms < 10" is not a limit on a metric: write METRIC <= NUMBER'),
        ("[10 >= latency_ms]", '"10 >= latency_ms" is not a limit on a metric'),
        ("[latency_ms <= fast]", '"latency_ms <= fast" is not a limit on a metric'),
        ("latency_ms <= 10", "must be a list, such as"),
        ("[3]", "3 is not text"),
        ("[latency_ms <= 1e999]", '"latency_ms <= 1e999" is not a limit on a metric'),
        (f"[latency_ms <= {'1' * 20_000}y]", '"latency_ms <= 111'),
    ],
)
def test_what_is_no_limit_is_named_with_its_line(folder: Path, written: str, message: str) -> None:
    (folder / "e.yaml").write_text(EXPERIMENT % written)
    with pytest.raises(InputError) as error:
        tuner.validate("e.yaml")
    assert "e.yaml:5" in str(error.value)
    assert f": outcome_constraints: {message}" in str(error.value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("scheduler: {kind: median, max_t: 9}", "scheduler median compares more than ranks of results; use one of: "),
        ("search: {kind: optuna, sampler: gp}", "search optuna gp models values, and no limits on them; use one of: "),
        ("constraints: [latency_ms <= 10]", "limits on reported metrics belong to outcome_constraints"),
    ],
)
def test_what_does_not_go_with_limits_is_refused(folder: Path, keys: str, message: str) -> None:
    (folder / "e.yaml").write_text(EXPERIMENT % "[latency_ms <= 10]" + keys)
    with pytest.raises(InputError) as error:
        tuner.validate("e.yaml")
    assert message in str(error.value)


def test_validate_tells_the_limits_and_each_report_must_hold_their_metrics(folder: Path) -> None:
    (folder / "e.yaml").write_text(EXPERIMENT % "[latency_ms <= 10, fairness >= 0.8]")
    done = CliRunner().invoke(cli, ["validate", "e.yaml"])
    assert "subject to    latency_ms <= 10 and fairness >= 0.8: a result that breaks one" in done.output
    assert "search        gp" in done.output
    plan = tuner.validate("e.yaml")
    assert plan.required_metrics[1:] == (
        ("latency_ms", "outcome_constraints[0]"),
        ("fairness", "outcome_constraints[1]"),
    )


def test_a_simulation_refuses_limits(folder: Path) -> None:
    (folder / "e.yaml").write_text(EXPERIMENT % "[latency_ms <= 10]")
    (folder / "t.csv").write_text("x,epoch,acc\n0.5,1,0.2\n")
    done = CliRunner().invoke(cli, ["simulate", "e.yaml", "--table", "t.csv"])
    assert "a simulation knows one metric, the objective: leave them out" in str(done.exception)


# --- who wins ----------------------------------------------------------------------------------------------------

LIMITS = (OutcomeConstraint.parse("a <= 10"), OutcomeConstraint.parse("b >= 0"))
numbers = st.tuples(finite, finite, finite)


@given(st.sampled_from(["min", "max"]), numbers, numbers)
def test_feasible_ones_keep_their_order_and_come_before_all_others(mode: Any, one: Any, other: Any) -> None:
    objective = Objective(metric="m", mode=mode)

    def quality(values: tuple[float, ...]) -> float:
        return objective.sign * ranked_values([objective], LIMITS, values)[0]

    broken = [total_violation(LIMITS, values[1:]) for values in (one, other)]
    if not any(broken):
        assert quality(one) == objective.sign * one[0]
    elif all(broken):
        assert (quality(one) > quality(other)) <= (broken[0] <= broken[1])
    else:
        assert (quality(one) > quality(other)) == (not broken[0])


def test_of_several_objectives_a_result_that_breaks_a_limit_is_dominated_by_all_that_keep_it() -> None:
    objectives = [Objective(metric="m", mode="max"), Objective(metric="n", mode="min")]
    kept = ranked_values(objectives, LIMITS, (-5e5, 9e5, 10.0, 0.0))
    lost = ranked_values(objectives, LIMITS, (5e5, -9e5, 10.1, 0.0))
    assert kept == (-5e5, 9e5)
    assert lost[0] < kept[0]
    assert lost[1] > kept[1]


@given(st.floats(0.1, 100), st.floats(0.1, 100), finite)
def test_a_weighted_sum_of_infeasible_values_is_no_worse_than_one_value(a: float, b: float, broken: float) -> None:
    objectives = [Objective(metric="m", mode="max", weight=a), Objective(metric="n", mode="min", weight=b)]
    limit = [OutcomeConstraint.parse("x <= -1e6")]
    total = compared(objectives, ranked_values(objectives, limit, (1.0, 2.0, broken + 1.0)))
    assert is_infeasible(total)
    assert -2.1e29 < total < 0


def test_a_violation_beyond_all_numbers_is_still_one() -> None:
    objective, limit = Objective(metric="m", mode="max"), [OutcomeConstraint.parse("x <= 1e-9")]
    (huge,) = ranked_values([objective], limit, (0.0, 1e300))
    (small,) = ranked_values([objective], limit, (0.0, 1.0))
    assert huge <= small < -1e28


# --- whole searches ----------------------------------------------------------------------------------------------


def accuracy(config: dict[str, Any]) -> float:
    """The larger x is, the better; half of the domain is too slow."""
    return float(1 - (config["x"] - 0.9) ** 2 - 0.01 * config["y"])


def begun(storage: Path, trials: int = 40, limit: str = "latency_ms <= 10", **keys: Any) -> AskTell:
    search = tuner.Search(
        None,
        {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}},
        objective=tuner.maximize("acc"),
        outcome_constraints=[limit],
        budget=tuner.Budget(trials=trials),
        **keys,
    )
    return search.begin(name="q", storage=storage)


def drive(loop: AskTell, until: int | None = None) -> None:
    """Trials one after the other, of three epochs each; latency is 20 x."""
    told = 0
    while (trial := loop.ask()) is not None:
        for epoch in range(trial.step + 1, 4):
            metrics = {"acc": accuracy(trial.config), "latency_ms": 20 * trial.config["x"], "epoch": epoch}
            answer = loop.tell(trial, metrics)
            told += 1
            if told == until:
                return
            if answer != "continue":
                break
        else:
            loop.finish(trial)


def searched(storage: Path, trials: int = 40, limit: str = "latency_ms <= 10", **keys: Any) -> tuner.Run:
    with begun(storage, trials, limit, **keys) as loop:
        drive(loop)
    return tuner.load(storage / "q")


def feasible(results: ResultSet) -> list[bool]:
    return [results.is_feasible(trial.best) for trial in results.trials if trial.best]


ASHA = tuner.schedulers.Asha(max_t=3, time_attr="epoch", reduction_factor=2)
SEARCHERS: dict[str, Callable[[], Any]] = {
    "random": lambda: tuner.searchers.Random(seed=1),
    "gp": lambda: tuner.searchers.Gp(seed=1),
    "bohb": lambda: tuner.searchers.Bohb(seed=1),
    "tpe": lambda: tuner.searchers.Optuna(seed=1),
    "cmaes": lambda: tuner.searchers.Optuna(seed=1, sampler="cmaes"),
    "nsga2": lambda: tuner.searchers.Optuna(seed=1, sampler="nsga2"),
    "qmc": lambda: tuner.searchers.Optuna(seed=1, sampler="qmc"),
    "hyperopt": lambda: tuner.searchers.HyperOpt(seed=1),
}


@pytest.mark.parametrize("name", SEARCHERS)
def test_the_best_keeps_the_limit_and_is_the_same_when_the_run_is_read(tmp_path: Path, name: str) -> None:
    run = searched(tmp_path, searcher=SEARCHERS[name](), scheduler=ASHA)
    results, best = run.results, run.best_trial
    assert best is not None
    assert 0 < sum(feasible(results)) < len(results.trials)
    among = [accuracy(trial.config) for trial in results.trials if trial.config["x"] <= 0.5]
    assert run.best_value == max(among)
    assert max(accuracy(trial.config) for trial in results.trials) > run.best_value
    assert results.rank(results.trials)[0] is best
    table = run.trials_dataframe()
    assert table["best_latency_ms"].tolist() == [20 * trial.config["x"] for trial in results.trials]


@pytest.mark.parametrize("scheduler", [tuner.schedulers.Fifo(), ASHA], ids=["fifo", "asha"])
@pytest.mark.parametrize("name", ["gp", "bohb", "tpe", "hyperopt"])
def test_a_model_learns_where_the_limit_is(tmp_path: Path, name: str, scheduler: Any) -> None:
    """At random 1 of 4 trials keeps it; without the limit the best is at 0.9, far from it."""
    run = searched(tmp_path, 50, "latency_ms <= 5", searcher=SEARCHERS[name](), scheduler=scheduler)
    assert run.best_trial is not None
    assert 0.22 < run.best_trial.config["x"] <= 0.25
    late = feasible(run.results)[20:]
    assert sum(late) > 0.3 * len(late)


def test_workers_do_not_ask_for_the_same_while_nothing_is_feasible(tmp_path: Path) -> None:
    """Distance of each of 6 trials at once to the nearest other one."""
    with begun(tmp_path, 30, "latency_ms <= -1", searcher=tuner.searchers.Gp(seed=0)) as loop:
        nearest = []
        while batch := [trial for _ in range(6) if (trial := loop.ask()) is not None]:
            points = np.array([[trial.config["x"], trial.config["y"]] for trial in batch])
            apart = np.linalg.norm(points[:, None] - points, axis=2) + 9 * np.eye(len(points))
            nearest.append(float(np.median(apart.min(axis=1))))
            for trial in batch:
                loop.tell(trial, {"acc": accuracy(trial.config), "latency_ms": 20 * trial.config["x"]})
                loop.finish(trial)
    assert np.median(nearest[2:]) > 0.003


def test_a_report_that_keeps_the_limit_comes_before_one_with_a_checkpoint(tmp_path: Path) -> None:
    results = searched(tmp_path, 1).results
    trial = results.trials[0]
    history = EventApplier(results)
    trial.reports.clear()
    trial.best = None
    for step, (latency, checkpoint) in enumerate([(5.0, None), (15.0, "c")], 1):
        metrics = {"acc": 0.5, "latency_ms": latency, "epoch": step}
        history.reported(Report(trial.id, step, 1.0, 1e9, metrics, checkpoint))
    assert trial.best is trial.reports[0]


def test_runs_with_different_limits_are_not_compared(tmp_path: Path) -> None:
    runs = [searched(tmp_path / limit, 3, f"latency_ms <= {limit}").results for limit in ("5", "9")]
    with pytest.raises(InputError, match=r"subject to latency_ms <= 5; .* subject to latency_ms <= 9"):
        race(runs)


def test_gp_looks_for_a_feasible_configuration_first(tmp_path: Path) -> None:
    """One in a hundred is feasible, and the objective is best at the other end."""
    run = searched(tmp_path, 30, "latency_ms <= 0.2", searcher=tuner.searchers.Gp(seed=0))
    assert run.best_trial is not None
    assert run.best_trial.config["x"] <= 0.01


def test_trials_that_break_the_limit_are_stopped_before_others(tmp_path: Path) -> None:
    results = searched(tmp_path, searcher=SEARCHERS["random"](), scheduler=ASHA).results
    shares = {}
    for kept in (True, False):
        ends = [trial.status for trial in results.trials if (trial.config["x"] <= 0.5) is kept]
        shares[kept] = ends.count("completed") / len(ends)
    assert shares[True] > 2 * shares[False]


def test_a_search_that_was_left_continues_as_if_it_had_not_been(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"searcher": SEARCHERS["gp"](), "scheduler": ASHA}
    whole = searched(tmp_path / "whole", 24, **keys)
    with begun(tmp_path / "left", 24, **keys) as loop:
        drive(loop, until=30)
    with tuner.load(tmp_path / "left/q").reopen() as loop:
        drive(loop)
    left = tuner.load(tmp_path / "left/q")
    assert [(t.config, t.steps) for t in left.trials] == [(t.config, t.steps) for t in whole.trials]
    assert left.best_value == whole.best_value


# --- where nobody wins -------------------------------------------------------------------------------------------


def test_where_no_trial_keeps_the_limit_the_nearest_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = searched(tmp_path, 8, "latency_ms <= -1", searcher=SEARCHERS["random"]())
    nearest = min(run.trials, key=lambda trial: trial.config["x"])
    told = f"no trial keeps latency_ms <= -1; nearest comes trial {nearest.label}"
    assert (run.best_trial, run.best_value) == (None, None)
    assert headline(run.results)[0].startswith(told)
    assert summarize(run.results)[0].startswith(f"No result that can be used: {told}")
    assert "<h2>Best configuration</h2>" in page(run.results)
    assert "breaks latency_ms &lt;= -1" in page(run.results)
    shown = overview(run.results, "finished").splitlines()
    assert "8 of 8 trials with a result never keep latency_ms <= -1" in shown
    done = CliRunner().invoke(cli, ["best", "q"])
    assert isinstance(done.exception, InputError)
    assert told in str(done.exception)
    document = json.loads(CliRunner().invoke(cli, ["show", "q", "--json"]).output)
    assert document["best"] is None


def test_a_limit_on_the_objective_itself(tmp_path: Path) -> None:
    run = searched(tmp_path, 20, "acc <= 0.7", searcher=SEARCHERS["random"]())
    assert run.best_value == max(accuracy(t.config) for t in run.trials if accuracy(t.config) <= 0.7)


def test_optuna_sees_which_trials_break_the_limit(tmp_path: Path) -> None:
    run = searched(tmp_path, 10, searcher=SEARCHERS["random"]())
    study = optuna_study(run.results)
    assert [study.trials[i].system_attrs["constraints"][0] > 0 for i in range(10)] == [
        trial.config["x"] > 0.5 for trial in run.trials
    ]
    assert study.best_trial.value == run.best_value
    assert isinstance(study, optuna.Study)


def test_an_older_run_without_limits_reads_as_before(tmp_path: Path) -> None:
    run = searched(tmp_path, 6, searcher=SEARCHERS["random"]())
    del run.results.spec["outcome_constraints"]
    run.results.__dict__.pop("outcome_constraints", None)
    assert run.best_value == max(accuracy(trial.config) for trial in run.trials)


def test_two_objectives_under_a_limit(tmp_path: Path) -> None:
    search = tuner.Search(
        None,
        {"x": {"uniform": [0, 1]}},
        objective=[tuner.maximize("acc"), tuner.minimize("size")],
        outcome_constraints=["size <= 0.5"],
        budget=tuner.Budget(trials=15),
        searcher=tuner.searchers.Optuna(seed=0),
        scheduler=tuner.schedulers.Asha(max_t=2, reduction_factor=2),
    )
    with search.begin(name="q", storage=tmp_path) as loop:
        while (trial := loop.ask()) is not None:
            for _ in range(2):
                answer = loop.tell(trial, {"acc": trial.config["x"], "size": trial.config["x"] ** 2})
                if answer != "continue":
                    break
            else:
                loop.finish(trial)
    run = tuner.load(tmp_path / "q")
    assert run.front
    assert all(trial.config["x"] ** 2 <= 0.5 for trial in run.front)
    assert any(trial.config["x"] ** 2 > 0.5 for trial in run.trials)


def test_the_search_object_refuses_what_is_no_limit() -> None:
    with pytest.raises(InputError, match="is not a limit on a metric"):
        tuner.Search(
            None, {"x": {"uniform": [0, 1]}}, objective=tuner.maximize("acc"), outcome_constraints=["fast enough"]
        )
