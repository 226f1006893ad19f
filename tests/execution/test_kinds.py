"""Searches over what a user of Ray Tune already has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.execution.test_checkpoints import At, press_ctrl_c
from tuner import load_run, resume, run
from tuner.actions.replay import replay
from tuner.errors import Interrupted
from tuner.execution.recorder import Listener
from tuner.runs.results import ResultSet

pytestmark = [pytest.mark.pairings, pytest.mark.usefixtures("ray_session")]
TOYS = Path(__file__).with_name("kinds_toys.py")


def search(
    storage: Path,
    name: str,
    xs: list[float],
    said: list[str] | None = None,
    listeners: Sequence[Listener] = (),
    **keys: object,
) -> ResultSet:
    experiment = {
        "trainable": f"{TOYS}:{name}",
        "search_space": {"x": {"grid_search": xs}},
        "objective": {"metric": "score", "mode": "max"},
        "search": {"kind": "grid"},
        "resources": {"gpu": 0, "max_concurrent_trials": 1},
        **keys,
    }
    say = (said if said is not None else []).append
    return run(experiment, storage=storage, name="run", listeners=listeners, say=say)


def scores(results: ResultSet) -> dict[float, list[float]]:
    return {t.config["x"]: [r.metrics["score"] for r in t.reports] for t in results.trials}


@pytest.mark.parametrize("name", ["AddsUp", "InFolder"])
def test_a_class_runs_until_it_is_done(tmp_path: Path, name: str) -> None:
    results = search(tmp_path, name, [1.0, 2.0], params={"log": str(tmp_path)})
    assert scores(results) == {1.0: [1, 2, 3], 2.0: [2, 4, 6]}
    assert [t.status for t in results.trials] == ["completed", "completed"]
    assert [r.metrics["iteration"] for r in results.trials[0].reports] == [0, 1, 2]
    assert set(results.trials[0].reports[0].metrics) == {"score", "iteration"}
    for trial in results.trials:
        assert [p.read_text() for p in tmp_path.glob(f"cleaned-{trial.id}-*")] == ["x"]
    assert any((tmp_path / "run/best/checkpoint").iterdir())


def test_a_class_is_stopped_by_the_scheduler_and_cleans_up(tmp_path: Path) -> None:
    scheduler = {"kind": "asha", "time_attr": "training_iteration", "max_t": 9, "grace_period": 1}
    results = search(tmp_path, "Endless", [3.0, 2.0, 1.0, 0.5], params={"log": str(tmp_path)}, scheduler=scheduler)
    assert {t.status for t in results.trials} == {"completed", "stopped"}
    assert max(t.steps for t in results.trials) == 9
    for trial in results.trials:
        assert [p.read_text() for p in tmp_path.glob(f"cleaned-{trial.id}-*")] == ["x"], trial


@pytest.mark.parametrize("variant", ["stopping", "promotion"])
def test_a_paused_class_continues_from_its_checkpoint(tmp_path: Path, variant: str) -> None:
    scheduler = {
        "kind": "asha",
        "time_attr": "training_iteration",
        "max_t": 4,
        "grace_period": 2,
        "reduction_factor": 2,
        "variant": variant,
    }
    results = search(
        tmp_path, "InFolder", [1.0, 2.0, 3.0, 4.0], params={"log": str(tmp_path), "steps": 9}, scheduler=scheduler
    )
    for x, values in scores(results).items():
        assert values == [x * step for step in range(1, len(values) + 1)]
    for trial in results.trials:
        assert [r.metrics["iteration"] for r in trial.reports] == list(range(trial.steps))
    assert max(t.steps for t in results.trials) == 4


def test_a_class_that_is_exploited_takes_over_state_and_configuration(tmp_path: Path) -> None:
    scheduler = {
        "kind": "pbt",
        "time_attr": "training_iteration",
        "max_t": 12,
        "perturbation_interval": 2,
        "mutate": ["x"],
    }
    results = search(
        tmp_path,
        "AddsUp",
        [],
        params={"log": str(tmp_path), "steps": 99},
        scheduler=scheduler,
        search={"kind": "random", "seed": 1, "points_to_evaluate": [{"x": x} for x in (1.0, 2.0, 8.0, 9.0)]},
        search_space={"x": {"uniform": [0, 10]}},
        budget={"trials": 4},
    )
    taken = [segment for trial in results.trials for segment in trial.segments if segment.donor]
    assert taken
    for trial in results.trials:
        values = [r.metrics["score"] for r in trial.reports]
        for segment in trial.segments:
            if segment.donor and segment.after < len(values):
                donor = results.trial(segment.donor).reports[segment.donor_step - 1].metrics["score"]
                assert values[segment.after] == pytest.approx(donor + segment.config["x"])


def test_a_class_that_failed_continues_from_its_checkpoint(tmp_path: Path) -> None:
    results = search(tmp_path, "FailsOnce", [1.0], params={"log": str(tmp_path), "steps": 4})
    assert scores(results) == {1.0: [1, 2, 3, 4]}
    assert [r.metrics["iteration"] for r in results.trials[0].reports] == [0, 1, 2, 3]


def test_a_class_is_interrupted_and_resumed(tmp_path: Path) -> None:
    params = {"log": str(tmp_path), "steps": 40, "seconds": 0.05}
    with pytest.raises(Interrupted):
        search(tmp_path, "AddsUp", [1.0, 2.0], params=params, listeners=[At(5, press_ctrl_c)])
    before = {trial.id: trial.steps for trial in load_run(tmp_path / "run").trials}
    assert 0 < max(before.values()) < 40
    results = resume(tmp_path / "run", say=lambda text: None)
    for trial in results.trials:
        assert [r.metrics["score"] for r in trial.reports] == [trial.config["x"] * n for n in range(1, 41)]
        assert [r.metrics["iteration"] for r in trial.reports] == list(range(40))


def test_a_cleanup_that_raises_costs_no_result(tmp_path: Path) -> None:
    results = search(tmp_path, "BreaksAtCleanup", [1.0], params={"log": str(tmp_path)})
    assert results.trials[0].status == "completed"
    assert "RuntimeError: in cleanup" in (tmp_path / f"run/ray/{results.trials[0].id}/output.log").read_text()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("with_data", {1.0: [6], 2.0: [12]}),
        ("function_with_data", {1.0: [6], 2.0: [12]}),
        ("partly", {1.0: [11], 2.0: [21]}),
        ("instance", {1.0: [1], 2.0: [2]}),
        ("asks_for_more", {1.0: [1], 2.0: [2]}),
    ],
)
def test_what_is_wrapped_runs(tmp_path: Path, name: str, expected: dict) -> None:
    results = search(tmp_path, name, [1.0, 2.0])
    assert scores(results) == expected
    assert not results.notices


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("train_report", "ray.train.report", "ray.tune.report"),
        ("session_report", "ray.air.session.report", "ray.tune.report"),
        ("keywords", "ray.tune.report(name=value)", "ray.tune.report({'name': value})"),
        ("checkpoint_dir_of_ray_1", "ray.tune.checkpoint_dir", "ray.tune.report(metrics, checkpoint=...)"),
    ],
)
def test_interfaces_of_earlier_versions_run_with_one_notice(tmp_path: Path, name: str, old: str, new: str) -> None:
    said: list[str] = []
    results = search(tmp_path, name, [1.0, 2.0, 3.0], said)
    assert [t.status for t in results.trials] == ["completed"] * 3
    told = [text for text in said if "earlier versions of Ray" in text]
    assert len(told) == 1
    assert f"write {new} instead of {old}" in told[0]
    assert len(load_run(tmp_path / "run").notices) == 1
    assert all(set(r.metrics) <= {"score", "epoch"} for t in results.trials for r in t.reports)


def test_the_checkpoint_of_an_earlier_interface_is_kept_and_continued_from(tmp_path: Path) -> None:
    results = search(tmp_path, "checkpoint_dir_of_ray_1", [2.0], params={"fails": True})
    assert scores(results) == {2.0: [2, 4, 6, 8]}
    assert json.loads((tmp_path / "run/best/checkpoint/checkpoint").read_text()) == [4, 8.0]
    results = search(tmp_path / "train", "train_report", [2.0])
    assert json.loads((tmp_path / "train/run/best/checkpoint/state.json").read_text()) == 3


def test_the_trainables_own_resources_are_those_of_its_trials(tmp_path: Path) -> None:
    said: list[str] = []
    results = search(tmp_path, "asks_for_more", [1.0], said, resources={})
    assert results.spec["resources"]["cpu"] == 2
    assert not said
    results = search(tmp_path / "other", "asks_for_more", [1.0], said, resources={"cpu": 1})
    assert results.spec["resources"]["cpu"] == 1
    assert said == ["NOTICE: resources.cpu is 1, as in the experiment; the trainable asks for 2"]


def test_a_class_is_replayed_to_the_last_bit(tmp_path: Path) -> None:
    results = search(tmp_path, "InFolder", [0.1], params={"log": str(tmp_path)})
    found = replay(results, results.trials[0])
    assert (found.agrees, found.reports) == (True, 3)


def test_an_earlier_interface_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = search(tmp_path, "train_report", [0.1])
    found = replay(results, results.trials[0])
    assert (found.agrees, found.reports) == (True, 3)


TWO_SEARCHES = """
import tuner
from ray import tune

def fit(config, points):
    tune.report({"error": sum((y - config["slope"] * x) ** 2 for x, y in points)})

first, later = (tune.with_parameters(fit, points=[(1, 2), (2, 4)]) for _ in range(2))
for bound in first, later:
    search = tuner.Search(bound, {"slope": tune.uniform(0, 4)}, objective=tuner.minimize("error"),
                          budget=tuner.Budget(trials=2), resources=tuner.Resources(gpu=0))
    print(len(search.run(progress="none").trials_dataframe()))
"""


def test_values_bound_before_the_first_search_are_there_in_each(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO_SEARCHES)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, "two.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "2"]
