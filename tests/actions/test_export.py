"""A run as an Optuna study: what Optuna reads back, and what its own plots make of it."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna import visualization
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from tests.runs.test_results import new_run, report, trial
from tuner.actions.export import optuna_study
from tuner.errors import EnvironmentFailure, InputError
from tuner.runs.results import ResultSet
from tuner.runs.trial import Segment
from tuner.spec.values import to_inline_yaml

SPACE = {
    "lr": {"loguniform": [1e-4, 1.0]},
    "optimizer": {"choice": ["sgd", "adam"]},
    "momentum": {"quniform": [0.5, 1.0, 0.1], "when": {"optimizer": "sgd"}},
    "net": {"depth": {"randint": [1, 5]}},
}


def run_over(folder: Path, space: dict[str, Any], **spec: Any) -> ResultSet:
    results = new_run(folder)
    results.provenance |= {"started": "2026-01-01T12:00:00+0000", "roots": [str(folder)]}
    results.spec |= {"search_space": space, **spec}
    return results


def finished(folder: Path, count: int = 20) -> ResultSet:
    """Half of the trials are stopped after one of three reports."""
    results = run_over(folder, SPACE, scheduler={"kind": "asha", "time_attr": "epoch", "max_t": 6})
    rng = random.Random(0)
    for k in range(count):
        config: dict[str, Any] = {"lr": 10 ** rng.uniform(-4, 0), "optimizer": rng.choice(["sgd", "adam"])}
        config |= {"momentum": 0.7} if config["optimizer"] == "sgd" else {}
        made = trial(results, config=config | {"net": {"depth": rng.randrange(1, 5)}})
        made.status = "stopped" if k % 2 else "completed"
        for epoch in (2, 4, 6)[: 1 if k % 2 else 3]:
            made.best = report(made, rng.random(), epoch=epoch)
    return results


def test_trials_have_their_states_values_curves_and_active_parameters(tmp_path: Path) -> None:
    results = run_over(tmp_path / "r", SPACE, scheduler={"kind": "asha", "time_attr": "epoch", "max_t": 6})
    done = trial(results, config={"lr": 0.1, "optimizer": "sgd", "momentum": 0.7, "net": {"depth": 2}})
    report(done, 0.3, epoch=2)
    done.best = report(done, 0.5, epoch=4)
    report(done, 0.4, epoch=6)
    adam = {"lr": 0.2, "optimizer": "adam", "net": {"depth": 4}}
    for status in ("stopped", "failed", "running", "paused", "pending", "completed"):
        other = trial(results, config=adam)
        other.status = status  # type: ignore[assignment]
        if status in ("stopped", "failed"):
            other.best = report(other, 0.2, epoch=2)
    results.trials[1].reason = "stopped by the scheduler at rung 2"

    first, stopped, failed, running, paused, pending, silent = optuna_study(results).trials
    assert (first.state, first.value, first.number) == (TrialState.COMPLETE, 0.5, 0)
    assert first.params == {"lr": 0.1, "optimizer": "sgd", "momentum": 0.7, "net.depth": 2}
    assert first.intermediate_values == {2: 0.3, 4: 0.5, 6: 0.4}
    assert first.user_attrs == {"trial": "id1", "number": 1, "reason": "", "seconds": 1.5}
    assert first.datetime_start == datetime.fromtimestamp(1e9 + 0.5)
    assert (stopped.state, stopped.value, stopped.params["optimizer"]) == (TrialState.PRUNED, 0.2, "adam")
    assert "momentum" not in stopped.params
    assert stopped.user_attrs["reason"] == "stopped by the scheduler at rung 2"
    assert (failed.state, failed.value, failed.intermediate_values) == (TrialState.FAIL, None, {2: 0.2})
    assert [t.state for t in (running, paused)] == [TrialState.RUNNING] * 2
    assert (pending.state, silent.state) == (TrialState.WAITING, TrialState.FAIL)
    assert first.distributions == {
        "lr": FloatDistribution(1e-4, 1.0, log=True),
        "optimizer": CategoricalDistribution(["sgd", "adam"]),
        "momentum": FloatDistribution(0.5, 1.0, step=0.1),
        "net.depth": IntDistribution(1, 4),
    }


PLOTS = {
    "plot_optimization_history": {},
    "plot_intermediate_values": {},
    "plot_param_importances": {},
    "plot_contour": {"params": ["lr", "net.depth"]},
    "plot_slice": {},
    "plot_parallel_coordinate": {},
    "plot_timeline": {},
}


@pytest.mark.parametrize("plot", PLOTS)
def test_optuna_s_plots_have_something_to_show(tmp_path: Path, plot: str) -> None:
    figure = getattr(visualization, plot)(optuna_study(finished(tmp_path / "r")), **PLOTS[plot])
    axes = [trace[axis] for trace in figure.data for axis in ("x", "dimensions") if axis in trace]
    assert any(values is not None and len(values) for values in axes)


def test_a_run_replaces_its_own_study_and_no_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    results = finished(tmp_path / "r", 4)
    optuna_study(results, url)
    trial(results, 0.5, config={"lr": 0.1, "optimizer": "adam", "net": {"depth": 1}})
    optuna_study(results, url)
    assert optuna.get_all_study_names(url) == ["r"]
    study = optuna.load_study(study_name="r", storage=url)
    assert [t.user_attrs["number"] for t in study.trials] == [1, 2, 3, 4, 5]
    assert study.user_attrs["best_trial"] == [results.best.id]  # type: ignore[union-attr]

    results.provenance["started"] = "2026-01-02T12:00:00+0000"
    with pytest.raises(InputError, match=r"has a study 'r' that is not of this run: choose another name \(--study\)"):
        optuna_study(results, url)
    optuna_study(results, url, "other")
    assert sorted(optuna.get_all_study_names(url)) == ["other", "r"]


def test_several_objectives_give_several_directions(tmp_path: Path) -> None:
    objectives = [{"metric": "acc", "mode": "max"}, {"metric": "loss", "mode": "min"}]
    results = run_over(tmp_path / "r", {"lr": {"uniform": [0, 1]}}, objective=objectives)
    one = trial(results, config={"lr": 0.5})
    one.best = report(one, 0.9, loss=0.2)
    study = optuna_study(results)
    assert [direction.name for direction in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert study.metric_names == ["acc", "loss"]
    assert study.trials[0].values == [0.9, 0.2]
    assert study.trials[0].intermediate_values == {1: 0.9}


def test_a_trial_that_changed_its_configuration_has_that_of_its_best_report(tmp_path: Path) -> None:
    results = run_over(tmp_path / "r", {"lr": {"uniform": [0, 1]}})
    changed = trial(results, 0.1, 0.7, config={"lr": 0.6})
    changed.segments = [Segment(0, {"lr": 0.3}), Segment(1, {"lr": 0.6}, "id2", 1)]
    assert optuna_study(results).trials[0].params == {"lr": 0.6}


TEXT = "its values become text"
TOLD: dict[str, tuple[dict[str, Any], list[Any], BaseDistribution, str]] = {
    "log step": ({"qlograndint": [16, 64, 16]}, [48, 16], IntDistribution(16, 64, log=True), "loses its quantum"),
    "log quantum": ({"qloguniform": [0.1, 0.9, 0.1]}, [0.3, 0.9], FloatDistribution(0.1, 0.9, log=True), "quantum"),
    "quantum": ({"qrandint": [8, 64, 8]}, [64, 8], IntDistribution(8, 64, step=8), ""),
    "normal": ({"randn": [0, 1]}, [7.0, -7.0], FloatDistribution(-7, 7), "randn [0, 1] becomes -7 to 7"),
    "beyond": ({"uniform": [0, 1]}, [0.5, 1.5], FloatDistribution(0, 1.5), "becomes 0 to 1.5"),
    "below 0": ({"loguniform": [0.1, 1]}, [-1.0, 0.5], FloatDistribution(-1, 1), "becomes -1 to 1"),
    "between": ({"quniform": [0, 1, 0.5]}, [0.5, 0.7], FloatDistribution(0, 1), "loses its quantum"),
    "not whole": ({"randint": [0, 9]}, [0.5, 1], FloatDistribution(0, 8), ""),
    "not a number": ({"randint": [1, 9]}, [2, "auto"], CategoricalDistribution([2, "auto"]), ""),
    "another": ({"choice": [1, "a"]}, ["a", "b"], CategoricalDistribution([1, "a", "b"]), ""),
    "lists": ({"choice": [[1, 2], "a"]}, [[1, 2], "a"], CategoricalDistribution(["[1, 2]", "a"]), TEXT),
    "equal": ({"choice": [True, 1]}, [1, True], CategoricalDistribution(["true", "1"]), TEXT),
}
"""Domain, values of two trials, distribution, and what is said of it."""


def test_what_optuna_has_no_distribution_for_is_told_as_what_is_nearest(tmp_path: Path) -> None:
    results = run_over(tmp_path / "r", {name: domain for name, (domain, *_) in TOLD.items()})
    for k in range(2):
        trial(results, 0.5, config={name: values[k] for name, (_, values, *_) in TOLD.items()})
    optuna_study(results, f"sqlite:///{tmp_path}/x.db")
    study = optuna.load_study(study_name="r", storage=f"sqlite:///{tmp_path}/x.db")
    notices = dict(notice.split(": ", 1) for notice in study.user_attrs["notices"])
    for name, (_, values, distribution, said) in TOLD.items():
        told = [to_inline_yaml(value) for value in values] if said == TEXT else values
        assert [t.params[name] for t in study.trials] == told, name
        assert [t.distributions[name] for t in study.trials] == [distribution, distribution], name
        assert said in notices[name] if said else name not in notices, name


def test_a_computed_value_is_a_user_attribute(user_folder: Path) -> None:
    Path("spaces.py").write_text(
        "from ray import tune\nspace = {'x': tune.uniform(0, 1), 'twice': tune.sample_from(lambda s: s.config.x * 2)}\n"
    )
    results = run_over(user_folder / "r", {})
    results.provenance["roots"] = [str(user_folder)]
    results.spec["search_space"] = "spaces:space"
    trial(results, 0.5, config={"x": 0.25, "twice": 0.5})
    (one,) = optuna_study(results).trials
    assert (one.params, one.user_attrs["config.twice"]) == ({"x": 0.25}, 0.5)


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("x.db", InputError, "'x.db' is not a database that Optuna can open: .* such as sqlite:///study.db"),
        ("foo://x", InputError, "Can't load plugin"),
        (
            "sqlite:////nowhere/x.db",
            EnvironmentFailure,
            "unable to open database file; is its server up",
        ),
    ],
)
def test_a_bad_url_is_said_in_one_line(tmp_path: Path, url: str, error: type[Exception], words: str) -> None:
    results = run_over(tmp_path / "r", {"x": {"uniform": [0, 1]}})
    with pytest.raises(error, match=words) as caught:
        optuna_study(results, url)
    assert "\n" not in str(caught.value)
