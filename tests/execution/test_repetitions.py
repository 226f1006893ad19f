"""Several trainings of one configuration as one trial."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

import tuner
from tests.execution import repeat_toys
from tuner import load_run, restore_best, run
from tuner.actions.confirm import confirm
from tuner.actions.replay import replay
from tuner.errors import InputError
from tuner.execution.in_process import run_in_process
from tuner.execution.trial_context import TrialContext
from tuner.experiment.repeat import Repeat
from tuner.plan.cluster import this_machine
from tuner.plan.planner import make_plan
from tuner.runs.results import ResultSet
from tuner.spec.objective import Objective

HERE = Path(__file__).parent
ASHA = {"kind": "asha", "time_attr": "repetition", "max_t": 4, "grace_period": 1, "reduction_factor": 2}


def experiment(function: str = "folds", **keys: Any) -> dict[str, Any]:
    return {
        "name": "q",
        "trainable": f"{HERE}/repeat_toys.py:{function}",
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "repeat": {"over": "fold", "times": 4},
        "search": {"kind": "random", "seed": 3},
        "budget": {"trials": 8},
        "resources": {"gpu": 0, "max_concurrent_trials": 1},
        **keys,
    }


def search(storage: Path, function: str = "folds", **keys: Any) -> ResultSet:
    return run(experiment(function, **keys), storage=storage, name="run", say=lambda text: None)


def trained(function: str, config: dict[str, Any], **keys: Any) -> tuple[list[dict[str, Any]], BaseException | None]:
    """What a trial in this process reports, and why it failed."""
    reports: list[dict[str, Any]] = []

    def take(number: int, metrics: dict[str, Any]) -> bool:
        reports.append(metrics)
        return True

    task = TrialContext(
        trainable=f"{HERE}/repeat_toys.py:{function}",
        roots=(HERE.parents[1],),
        working_directory=Path.cwd(),
        params={},
        required=(("score", "objective.metric"), ("repetition", "scheduler.time_attr")),
        seed=0,
        cpu=1,
        request={"CPU": 1},
        workers=1,
        objectives=(Objective(metric="score", mode="max"),),
        **{"repeat": Repeat(over="fold", times=4), **keys},
    )
    error = run_in_process(task, config, take, trial_id="t")
    return reports, error


def expected(x: float) -> list[dict[str, float]]:
    """The reports of `folds`: means over the best epochs of the folds so far."""
    best = [repeat_toys.value({"x": x, "fold": fold}, 1) for fold in range(4)]
    found = []
    for count in range(1, 5):
        spread = {"score_std": stdev(best[:count])} if count > 1 else {}
        found.append({"score": fmean(best[:count]), "epoch": 1, "repetition": count} | spread)
    return found


def test_a_trial_reports_the_means_of_the_best_reports_after_each_repetition() -> None:
    reports, error = trained("folds", {"x": 0.4})
    assert error is None
    assert reports == [pytest.approx(report) for report in expected(0.4)]


def test_each_repetition_has_a_seed_of_its_own_and_all_trials_the_same_ones() -> None:
    first, _ = trained("random_draw", {"x": 0.4})
    again, _ = trained("random_draw", {"x": 0.4})
    assert first == again
    assert first[-1]["score_std"] > 0


def test_a_repetition_without_a_report_is_a_failure() -> None:
    reports, error = trained("silent_in_the_second", {"x": 0.4})
    assert [report["repetition"] for report in reports] == [1]
    assert str(error) == "repetition 1 ended without a report: report at least once in each"


def trained_at_once(**keys: Any) -> tuple[list[dict[str, Any]], BaseException | None]:
    return trained("folds", {"x": 0.4, **keys}, repeat=Repeat(over="fold", times=4, at_once=True))


def expected_at_once(x: float) -> list[dict[str, float]]:
    """The means over the folds after each epoch."""
    found = []
    for epoch in range(3):
        scores = [repeat_toys.value({"x": x, "fold": fold}, epoch) for fold in range(4)]
        found.append({"score": fmean(scores), "epoch": epoch, "repetition": 4, "score_std": stdev(scores)})
    return found


def test_repetitions_at_once_report_their_means_whenever_all_have_reported() -> None:
    reports, error = trained_at_once()
    assert error is None
    assert reports == [pytest.approx(report) for report in expected_at_once(0.4)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("twice", "train_many reported number 0 again before number 1: report each in turn"),
        ("number", "train_many reported number 7, and there are 4 configurations"),
        ("leaves one out", "train_many ended without the last report of number 1: report each in turn"),
        ("one checkpoint", "train_many gave a checkpoint for 1 of 4 configurations: give all"),
    ],
)
def test_what_train_many_does_wrong_is_named(wrong: str, message: str) -> None:
    _, error = trained_at_once(wrong=wrong)
    assert str(error) == message


def test_the_parameter_may_be_nested() -> None:
    assert Repeat(over="data.split.fold", times=2).values(1) == {"data": {"split": {"fold": 1}}}


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"repeat": {"over": "x", "times": 4}}, r"repeat.over: x is also in search_space: take it out there"),
        ({"params": {"fold": 1}}, r"repeat.over: fold is also in params: take it out there"),
        (
            {"repeat": {"over": "fold", "times": 1}},
            r"repeat.times: must be greater than or equal to 2",
        ),
        ({"repeat": {"over": "a b", "times": 4}}, r"repeat.over"),
        ({"scheduler": ASHA | {"time_attr": "epoch"}}, r"scheduler.time_attr: epoch is not known .*: write repetition"),
        ({"scheduler": ASHA | {"max_t": 27}}, r"scheduler.max_t: is 27, and a complete trial has 4 .*: write max_t: 4"),
        (
            {"repeat": {"over": "fold", "times": 4, "at_once": True}, "resources": {"workers": 2, "gpu": 0}},
            r"repeat.at_once: is for trials of one process, and resources.workers is 2: leave out one",
        ),
        (
            {"repeat": {"over": "seed", "times": 4, "at_once": True}, "trainable": f"{HERE}/group_toys.py:adds"},
            r"repeat.at_once: needs a function train_many\(configs, report, checkpoints\) in the module of .*:adds",
        ),
        (
            {"scheduler": {"kind": "pbt", "max_t": 4, "perturbation_interval": 1}},
            r"repeat: is for trials that train once: pbt changes .*; use asha, or leave out repeat",
        ),
    ],
)
def test_a_plan_names_what_cannot_be_repeated(keys: dict[str, Any], problem: str) -> None:
    from tuner.experiment.reader import load_experiment

    with pytest.raises(InputError, match=problem):
        make_plan(load_experiment(experiment(**keys)), this_machine())


def test_a_typed_trainable_must_take_the_parameter(tmp_path: Path) -> None:
    from tuner.experiment.reader import load_experiment

    code = """
from dataclasses import dataclass

@dataclass
class Config:
    x: float

def train(config: Config):
    return {"score": config.x}
"""
    (tmp_path / "typed.py").write_text(code)
    written = experiment() | {"trainable": f"{tmp_path}/typed.py:train"}
    with pytest.raises(InputError, match=r"repeat.over: fold"):
        make_plan(load_experiment(written), this_machine())


def test_a_loop_of_the_users_repeats_by_itself(tmp_path: Path) -> None:
    made = tuner.Search(
        None, {"x": {"uniform": [0, 1]}}, objective=tuner.maximize("score"), repeat=tuner.Repeat(over="fold", times=4)
    )
    with pytest.raises(InputError, match=r"repeat: a loop of your own trains by itself"):
        made.begin(storage=tmp_path)


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
class TestOnRay:
    @pytest.mark.parametrize("variant", ["stopping", "promotion"])
    def test_later_repetitions_are_for_trials_in_the_race(self, variant: str, tmp_path: Path) -> None:
        results = search(tmp_path, scheduler=ASHA | {"variant": variant})
        assert {trial.steps for trial in results.trials} > {4}
        for trial in results.trials:
            found = [report.metrics for report in trial.reports]
            assert found == [pytest.approx(report) for report in expected(trial.config["x"])[: trial.steps]]
        best = results.best
        assert best is not None
        assert (best.steps, best.best and best.best.step) == (4, 4)  # a lucky first repetition is no result
        complete = [trial for trial in results.trials if trial.steps == 4]
        assert best is max(complete, key=lambda trial: trial.reports[-1].metrics["score"])

        loaded = load_run(tmp_path / "run")
        restored = restore_best(loaded, test=True)
        last = expected(best.config["x"])[-1]
        for scored in (restored.validation, restored.test):
            assert scored == pytest.approx({"score": last["score"], "score_std": last["score_std"]})
        assert replay(loaded, loaded.trial(best.id)).agrees

    def test_a_trial_that_dies_continues_with_the_repetition_that_it_was_in(self, tmp_path: Path) -> None:
        results = search(tmp_path, params={"marks": str(tmp_path)}, budget={"trials": 1})
        (trial,) = results.trials
        assert trial.status == "completed"
        assert [failure.kind for failure in trial.failures] == ["process died"]
        assert trial.reports[-1].metrics == pytest.approx(expected(trial.config["x"])[-1])
        log = (tmp_path / "log").read_text().split()
        assert list(zip(log[::2], log[1::2], strict=True)) == [
            *[(fold, epoch) for fold in "01" for epoch in "012"],
            ("2", "0"),  # and then it died
            *[(fold, epoch) for fold in "23" for epoch in "012"],
        ]

    def test_repetitions_at_once_are_stopped_by_their_epochs_and_restored(self, tmp_path: Path) -> None:
        asha = {"kind": "asha", "time_attr": "epoch", "max_t": 2, "grace_period": 1, "reduction_factor": 2}
        results = search(tmp_path, repeat={"over": "fold", "times": 4, "at_once": True}, scheduler=asha)
        assert {trial.status for trial in results.trials} == {"completed", "stopped"}
        for trial in results.trials:
            found = [report.metrics for report in trial.reports]
            assert found == [pytest.approx(report) for report in expected_at_once(trial.config["x"])[: trial.steps]]
        loaded = load_run(tmp_path / "run")
        best = loaded.best
        assert best is not None
        assert (best.best and best.best.step) == 2
        restored = restore_best(loaded, test=True)
        last = expected_at_once(best.config["x"])[1]
        assert restored.test == pytest.approx({"score": last["score"], "score_std": last["score_std"]})
        assert replay(loaded, loaded.trial(best.id)).agrees

    def test_repetitions_at_once_continue_after_a_kill(self, tmp_path: Path) -> None:
        at_once = {"over": "fold", "times": 4, "at_once": True}
        results = search(tmp_path, repeat=at_once, params={"marks": str(tmp_path)}, budget={"trials": 1})
        (trial,) = results.trials
        assert [failure.kind for failure in trial.failures] == ["process died"]
        found = [report.metrics for report in trial.reports]
        assert found == [pytest.approx(report) for report in expected_at_once(trial.config["x"])]

    def test_workers_repeat_together(self, tmp_path: Path) -> None:
        results = search(tmp_path, "together", budget={"trials": 1}, resources={"gpu": 0, "workers": 2})
        (trial,) = results.trials
        assert trial.status == "completed", trial.reason
        assert [report.metrics["score"] for report in trial.reports] == pytest.approx([0.5, 1.0, 1.5, 2.0])

    def test_a_search_over_seeds_is_confirmed_with_other_seeds(self, tmp_path: Path) -> None:
        keys = {"params": {"epochs": 1}, "search_space": {"lr": {"choice": [0.05, 0.1]}}}
        written = experiment(**keys, repeat={"over": "seed", "times": 2}, budget={"trials": 2})
        written |= {
            "trainable": "trainables.digits:train",
            "objective": {"metric": "val_accuracy", "mode": "max"},
            "scheduler": ASHA | {"max_t": 2},
        }
        results = run(written, storage=tmp_path, name="run", say=lambda text: None)
        found = confirm(results, top=1, seeds=2, say=lambda text: None)
        (one,) = found.configurations
        assert one.best.keys() == {2, 3}
        assert all(value > 0.3 for value in one.best.values())
        again = json.loads((tmp_path / "run-confirm/provenance.json").read_text())
        assert again["interrupted"] is False
