"""Searches on a real Ray session: what is found, what is kept, and what a bad trial may not do."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import pytest

from tuner import load_run, resume, run
from tuner.errors import EnvironmentFailure, InputError, NoUsableResult
from tuner.execution.recorder import Listener
from tuner.runs.results import ResultSet
from tuner.search.snapshot import read_snapshot
from tuner.storage.folder import RunFolder

pytestmark = pytest.mark.usefixtures("ray_session")
HERE = Path(__file__).parent


def experiment(function: str, space: dict, file: str = "toys.py", **keys: object) -> dict:
    return {
        "trainable": f"{Path(HERE, file)}:{function}",
        "search_space": space,
        "objective": {"metric": "score", "mode": "max"},
        "resources": {"gpu": 0, "max_concurrent_trials": 1},
        **keys,
    }


def search(storage: Path, function: str, space: dict, overrides: dict | None = None, **keys: object) -> ResultSet:
    return run(experiment(function, space, **keys), overrides or {}, storage=storage, name="run", say=lambda text: None)


def by_config(results: ResultSet, name: str) -> dict:
    return {trial.config[name]: trial for trial in results.trials}


def test_a_search_stops_trials_and_writes_a_complete_run_folder(tmp_path: Path) -> None:
    results = search(
        tmp_path,
        "quadratic",
        {"x": {"uniform": [0, 1]}},
        params={"epochs": 9},
        search={"kind": "random", "seed": 3},
        scheduler={"kind": "asha", "time_attr": "epoch", "max_t": 9, "grace_period": 1, "reduction_factor": 3},
        budget={"trials": 12},
    )
    assert {trial.status for trial in results.trials} == {"completed", "stopped"}
    for trial in results.trials:
        assert trial.steps == (9 if trial.status == "completed" else trial.rung)
        assert trial.rung in (None, 1, 3)
    folder = tmp_path / "run"
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "experiment.yaml",
        "provenance.json",
        "trials.csv",
        "results.parquet",
        "best",
        "report.html",
        "ray",
    }
    assert "The search came to its end after" in (folder / "report.html").read_text()
    again = load_run(folder)
    assert [t.config for t in again.trials] == [t.config for t in results.trials]
    assert again.frame().equals(results.frame())
    values = results.frame()
    values = values[values.checkpoint.notna()]
    assert results.best.best.metrics["score"] == results.frame().score.max()
    assert json.loads((folder / "best" / "config.json").read_text()) == {"epochs": 9, **results.best.config}
    assert (folder / "best" / "checkpoint" / "state.json").exists()


def test_the_best_is_the_best_report_with_a_checkpoint_not_the_last(tmp_path: Path) -> None:
    results = search(tmp_path, "rises_and_falls", {"peak": {"grid_search": [0.8, 0.9, 0.7]}}, search={"kind": "grid"})
    best = json.loads((tmp_path / "run/best/metrics.json").read_text())
    assert (best["score"], best["step"]) == (0.9, 2)
    assert json.loads((tmp_path / "run/best/checkpoint/state.json").read_text()) == {"step": 2}
    assert results.best.config == {"peak": 0.9}


def test_a_value_without_a_checkpoint_is_not_the_best(tmp_path: Path) -> None:
    results = search(tmp_path, "without_checkpoint_at_the_best", {"x": {"grid_search": [1]}}, search={"kind": "grid"})
    assert results.best.best.metrics["score"] == 0.7


@pytest.mark.faults
def test_a_bad_trial_fails_alone_with_its_reason(tmp_path: Path) -> None:
    ways = ["fine", "raise", "nan", "inf", "none", "text", "bool", "exit", "kill", "silent", "later nan"]
    ways += ["another name", "fine too"]
    once = {"failures": {"retries": 0}}
    results = search(tmp_path, "misbehaves", {"how": {"grid_search": ways}}, search={"kind": "grid"}, **once)
    trials = by_config(results, "how")
    assert {way for way, trial in trials.items() if trial.status == "completed"} == {"fine", "fine too"}
    expected = {
        "raise": "RuntimeError: a broken",
        "nan": "report 1: score is nan",
        "inf": "report 1: score is inf",
        "none": "report 1: score is None, not a number",
        "text": "report 1: score is 'high', not a number",
        "bool": "report 1: score is True, not a number",
        "exit": "its process died",
        "kill": "its process died",
        "silent": "ended without a report",
        "later nan": "report 2: score is nan",
        "another name": "objective.metric: the trainable reports no 'score'; it reports: accuracy, epoch",
    }
    for way, reason in expected.items():
        assert trials[way].status == "failed"
        assert reason in trials[way].reason, way
        assert "\n" not in trials[way].reason
    log = (tmp_path / "run/ray" / trials["raise"].id / "output.log").read_text()
    assert "about to raise" in log
    assert "Traceback" in log


@pytest.mark.faults
def test_the_searcher_is_told_of_failures(tmp_path: Path) -> None:
    space = {"how": {"choice": ["raise", "nan", "exit", "fine"]}}
    block = {"kind": "optuna", "sampler": "tpe", "seed": 1}
    results = search(tmp_path, "misbehaves", space, search=block, budget={"trials": 10}, failures={"retries": 1})
    found, _ = read_snapshot(RunFolder.at(tmp_path / "run"))
    assert found is not None
    state = found.state.searcher
    states = Counter(trial.state.name for trial in state._study.trials)  # type: ignore[attr-defined]
    assert states == {"FAIL": results.count("failed"), "COMPLETE": results.count("completed")}
    assert results.count("failed") > 0


@pytest.mark.faults
def test_all_trials_failing_ends_with_the_most_frequent_error(tmp_path: Path) -> None:
    with pytest.raises(NoUsableResult, match=r"all 3 trials failed; 2 of them with: RuntimeError: a broken"):
        search(
            tmp_path,
            "misbehaves",
            {"how": {"grid_search": ["raise", "nan"]}, "twice": {"grid_search": [1, 2], "when": {"how": "raise"}}},
            search={"kind": "grid"},
        )
    assert (tmp_path / "run/trials.csv").exists()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "objective.metric: the trainable reports no 'score'; it reports: accuracy, loss"),
        (
            {
                "objective": {"metric": "loss", "mode": "min"},
                "scheduler": {"kind": "asha", "grace_period": 1, "time_attr": "epoch", "max_t": 3},
            },
            "scheduler.time_attr: the trainable reports no 'epoch'; it reports: accuracy, loss",
        ),
    ],
)
def test_a_metric_that_is_never_reported_stops_the_search(tmp_path: Path, keys: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        search(tmp_path, "other_names", {"x": {"uniform": [0, 1]}}, budget={"trials": 50}, **keys)
    assert str(caught.value) == message
    stopped = load_run(tmp_path / "run")
    assert len(stopped.trials) <= 4
    assert (stopped.provenance["interrupted"], stopped.provenance["interrupted_by"]) == (True, message)


@pytest.mark.parametrize(("function", "steps", "best"), [("returns", 1, 0.5), ("yields", 3, 2.5)])
def test_a_function_may_return_or_yield_its_metrics(tmp_path: Path, function: str, steps: int, best: float) -> None:
    results = search(tmp_path, function, {"x": {"grid_search": [0.5]}}, search={"kind": "grid"})
    assert (results.trials[0].steps, results.value(results.best.best)) == (steps, best)


def test_relative_paths_are_those_of_the_directory_where_the_search_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.txt").write_text("2.0")
    monkeypatch.chdir(tmp_path)
    results = search(tmp_path, "reads_relative_path", {"x": {"grid_search": [1.5]}}, search={"kind": "grid"})
    assert results.value(results.best.best) == 3.0


@pytest.mark.pairings
@pytest.mark.parametrize("cpu", [1, 2])
def test_a_trial_has_as_many_threads_as_cpus(tmp_path: Path, cpu: int) -> None:
    results = search(
        tmp_path,
        "threads",
        {"x": {"grid_search": [1, 2, 3]}},
        file="torch_toys.py",
        search={"kind": "grid"},
        resources={"cpu": cpu, "gpu": 0},
    )
    for trial in results.trials:
        assert trial.reports[0].metrics["threads"] == cpu
        assert trial.reports[0].metrics["omp"] == str(cpu)


def test_budget_target_ends_the_search(tmp_path: Path) -> None:
    results = search(
        tmp_path,
        "quadratic",
        {"x": {"uniform": [0, 1]}},
        params={"epochs": 50, "seconds": 0.02},
        budget={"trials": 500, "target": -0.3},
    )
    assert results.value(results.best.best) >= -0.3
    assert len(results.trials) < 50
    assert any("budget.target -0.3 is reached" in trial.reason for trial in results.trials)
    assert (tmp_path / "run/best/checkpoint/state.json").exists()


@pytest.mark.pairings
def test_budget_wall_clock_ends_the_search(tmp_path: Path) -> None:
    results = search(
        tmp_path,
        "quadratic",
        {"x": {"uniform": [0, 1]}},
        params={"epochs": 10_000, "seconds": 0.05},
        budget={"trials": 500, "wall_clock": "5s"},
    )
    assert {trial.reason for trial in results.trials if trial.status == "stopped"} == {
        "budget.wall_clock 5.0s is used up"
    }


def test_only_the_best_trials_keep_checkpoints(tmp_path: Path) -> None:
    results = search(
        tmp_path,
        "quadratic",
        {"x": {"grid_search": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]}},
        search={"kind": "grid"},
        checkpoints={"keep_per_trial": 1, "keep_trials": 2},
    )
    kept = {path.parent.name for path in (tmp_path / "run/ray").glob("*/checkpoint_*")}
    assert kept == {trial.id for trial in results.rank(results.trials)[:2]}
    assert results.best.config == {"x": 0.3}


@pytest.mark.pairings
@pytest.mark.parametrize("searcher", [{"kind": "random"}, {"kind": "optuna", "sampler": "tpe"}])
def test_one_at_a_time_the_same_seed_gives_the_same_search(tmp_path: Path, searcher: dict) -> None:
    def configs(name: str) -> list[dict]:
        return [
            trial.config
            for trial in search(
                tmp_path / name,
                "quadratic",
                {"x": {"uniform": [0, 1]}, "kind": {"choice": ["a", "b"]}},
                search={**searcher, "seed": 5},
                scheduler={"kind": "asha", "grace_period": 1, "time_attr": "epoch", "max_t": 4, "reduction_factor": 2},
                budget={"trials": 14},
                resources={"gpu": 0, "max_concurrent_trials": 1},
            ).trials
        ]

    assert configs("a") == configs("b")


@pytest.mark.pairings
def test_a_run_can_be_repeated_from_its_own_folder(tmp_path: Path) -> None:
    def once(source: object, name: str, overrides: dict | None = None) -> ResultSet:
        return run(source, overrides or {}, storage=tmp_path, name=name, say=lambda text: None)

    space = {"x": {"uniform": [0, 1]}, "seed": {"randint": [0, 99]}}
    one = once(
        experiment("quadratic", space, resources={"gpu": 0, "max_concurrent_trials": 1}), "a", {"budget.trials": 3}
    )
    two = once(tmp_path / "a" / "experiment.yaml", "b")
    assert [trial.config for trial in one.trials] == [trial.config for trial in two.trials]
    assert one.best.best.metrics["score"] == two.best.best.metrics["score"]


def test_storage_may_be_a_uri(tmp_path: Path) -> None:
    run(
        experiment("quadratic", {"x": {"grid_search": [0.3]}}, search={"kind": "grid"}),
        storage=f"file://{tmp_path}/store",
        name="run",
    )
    assert load_run(f"file://{tmp_path}/store/run").best.config == {"x": 0.3}


@pytest.mark.pairings
def test_a_node_that_does_not_see_the_storage_ends_the_search_which_can_be_resumed(tmp_path: Path) -> None:
    """As one that joins without the mount: what the run folder holds is taken away once nodes have been asked."""
    file, elsewhere = tmp_path / "run" / "experiment.yaml", tmp_path / "elsewhere"
    seen = Mock(spec_set=Listener)
    seen.started.side_effect = lambda results: file.rename(elsewhere)
    space = {"x": {"grid_search": [0.1, 0.3]}}
    with pytest.raises(
        EnvironmentFailure, match=r"run cannot be written: node .+ does not see it: mount it there"
    ) as why:
        run(experiment("quadratic", space, search={"kind": "grid"}), storage=tmp_path, name="run", listeners=[seen])
    assert "to continue the search: python -m tuner resume" in str(why.value)
    elsewhere.rename(file)
    results = resume(tmp_path / "run", say=lambda text: None)
    assert [(trial.status, trial.steps, trial.failures) for trial in results.trials] == [("completed", 4, [])] * 2


def test_a_search_in_which_no_trial_keeps_a_limit_has_no_result(tmp_path: Path) -> None:
    """The best score of `quadratic` is -0.25."""
    space = {"x": {"grid_search": [0.1, 0.3]}}
    with pytest.raises(
        NoUsableResult, match=r"no trial keeps score >= 0; nearest comes trial #2 .*score -0\.25"
    ) as error:
        search(tmp_path, "quadratic", space, search={"kind": "grid"}, outcome_constraints=["score >= 0"])
    results = error.value.results
    assert isinstance(results, ResultSet)
    assert results.count("completed") == 2
    assert all(trial.best and trial.best.checkpoint for trial in results.trials)
    assert not (tmp_path / "run/best").exists()
