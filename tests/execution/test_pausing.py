"""Schedulers that pause trials, on a real Ray session."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rungs import promotion
from tuner import load_run, run
from tuner.errors import InputError
from tuner.runs.results import ResultSet

pytestmark = [pytest.mark.pairings, pytest.mark.usefixtures("ray_session")]
HERE = Path(__file__).parent


def search(storage: Path, function: str, scheduler: dict, **keys: object) -> ResultSet:
    experiment = {
        "trainable": f"{HERE}/toys.py:{function}",
        "params": {"epochs": 9},
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "search": {"kind": "random", "seed": 3},
        "scheduler": scheduler,
        "budget": {"trials": 12},
        "resources": {"gpu": 0, "max_concurrent_trials": 1},
        **keys,
    }
    return run(experiment, storage=storage, name="run", say=lambda text: None)


PROMOTION = promotion(max_t=9, reduction_factor=3)


def test_promoted_trials_go_on_from_their_checkpoint(tmp_path: Path) -> None:
    results = search(tmp_path, "quadratic", PROMOTION)
    assert {trial.steps for trial in results.trials} == {1, 3, 9}
    ranked = sorted(results.trials, key=lambda trial: abs(trial.config["x"] - 0.3))
    assert all(trial.steps > 1 for trial in ranked[:4])  # others too, which were among the best when they reported
    for trial in results.trials:
        assert [report.metrics["epoch"] for report in trial.reports] == list(range(1, trial.steps + 1))
        assert trial.status == ("completed" if trial.steps == 9 else "stopped")
        assert trial.rung == (None if trial.steps == 9 else trial.steps)
    assert ranked[0].steps == 9
    assert results.best is ranked[0]


def test_a_trainable_without_checkpoints_is_told_so_at_its_first_rung(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"asha pauses trials, and .* reported no checkpoint") as raised:
        search(tmp_path, "without_checkpoints", PROMOTION)
    assert "\n" not in str(raised.value)


def test_hyperband_halves_its_brackets(tmp_path: Path) -> None:
    scheduler = {"kind": "hyperband", "time_attr": "epoch", "max_t": 9, "reduction_factor": 3}
    results = search(tmp_path, "quadratic", scheduler, budget={"trials": 17})
    assert sorted(trial.steps for trial in results.trials) == [1] * 6 + [3] * 6 + [9] * 5
    for trial in results.trials:
        assert [report.metrics["epoch"] for report in trial.reports] == list(range(1, trial.steps + 1))


@pytest.mark.parametrize("kind", ["pbt", "pb2"])
def test_an_exploited_trial_goes_on_from_the_donors_state(tmp_path: Path, kind: str) -> None:
    results = search(
        tmp_path,
        "adds_up",
        {"kind": kind, "time_attr": "epoch", "max_t": 12, "perturbation_interval": 2},
        params={},
        budget={"trials": 4},
    )
    assert {trial.status for trial in results.trials} == {"completed"}
    exploited = [trial for trial in results.trials if trial.segments]
    assert exploited
    for trial in exploited:
        assert [report.step for report in trial.reports] == list(range(1, trial.steps + 1))
        for segment in trial.segments[1:]:
            donor = results.trial(segment.donor)
            before = next(r.metrics for r in donor.reports if r.step == segment.donor_step)
            after = next(r.metrics for r in trial.reports if r.step == segment.after + 1)
            assert after["score"] == pytest.approx(before["score"] + segment.config["x"])
            assert after["epoch"] == before["epoch"] + 1
    schedule = results.schedule(results.best)
    assert sum(s.config["x"] * (end - s.after) for _, s, end in schedule) == pytest.approx(
        results.value(results.best.best)
    )
    again = load_run(tmp_path / "run")
    assert [t.segments for t in again.trials] == [t.segments for t in results.trials]
    assert (tmp_path / "run/best/schedule.json").exists() == (len(schedule) > 1)
    assert not list((tmp_path / "run/ray").glob("*/from_*"))


@pytest.mark.parametrize("mutate", [None, ["x"]])
def test_weights_that_do_not_fit_are_explained(tmp_path: Path, mutate: list[str] | None) -> None:
    width = {"choice": [8, 16, 32, 64, 128]}
    results = search(
        tmp_path,
        "shaped_by_width",
        {"kind": "pbt", "time_attr": "epoch", "max_t": 12, "perturbation_interval": 2, "mutate": mutate},
        params={},
        search_space={"x": {"uniform": [0, 1]}, "model": {"width": width}},
        budget={"trials": 4},
        failures={"retries": 0},
    )
    failed = [trial for trial in results.trials if trial.status == "failed"]
    assert bool(failed) == (mutate is None)
    for trial in failed:
        assert re.fullmatch(
            r"RuntimeError: size mismatch: (\d+) in the checkpoint \(it had just taken over the checkpoint of trial "
            r"#\d+ .*, with .*model.width \1 -> \d+: what shapes .* leave it out of scheduler.mutate\)",
            trial.reason,
        )


def test_any_scheduler_of_rays_runs(tmp_path: Path) -> None:
    scheduler = {
        "kind": "ray",
        "class_path": "ray.tune.schedulers:AsyncHyperBandScheduler",
        "options": {"reduction_factor": 3},
        "time_attr": "epoch",
        "max_t": 9,
    }
    results = search(tmp_path, "quadratic", scheduler)
    assert {trial.status for trial in results.trials} == {"completed", "stopped"}


def test_several_objectives_give_a_front(tmp_path: Path) -> None:
    results = search(
        tmp_path,
        "trade_off",
        {"kind": "fifo"},
        objective=[{"metric": "score", "mode": "max"}, {"metric": "cost", "mode": "min"}],
        search={"kind": "optuna", "sampler": "nsga2", "seed": 1},
    )
    points = sorted((trial.best.metrics["cost"], trial.best.metrics["score"]) for trial in results.front)
    assert len(points) > 2
    assert [score for _, score in points] == sorted(score for _, score in points)
    assert not (tmp_path / "run/best").exists()
    assert all((tmp_path / "run" / trial.best.checkpoint).is_dir() for trial in results.front)
