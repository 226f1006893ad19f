"""MLflow holds what the run folder holds, once, whatever was sent before."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from pydantic import ValidationError

from tests.tracking.held import children, held, parent, recorded, runs
from tests.tracking.made_up import made_up_run, made_up_trial, report
from tuner.errors import EnvironmentFailure
from tuner.experiment.tracking import MlflowTracking
from tuner.runs.consumption import Consumption
from tuner.runs.failure import Failure
from tuner.runs.results import ResultSet
from tuner.runs.trial import Segment
from tuner.tracking.backends.mlflow import MlflowBackend


@pytest.fixture
def results(tmp_path: Path) -> ResultSet:
    return made_up_run(tmp_path)


def mirror(results: ResultSet, **options: Any) -> MlflowBackend:
    """One in a process of its own: it knows nothing but what MLflow says."""
    made = MlflowBackend(MlflowTracking.model_validate(options), results)
    made.open(results)
    return made


def send(results: ResultSet, **options: Any) -> None:
    mirror(results, **options).send(results, results.trials)


def test_a_trial_is_a_nested_run_with_its_configuration_and_metrics(results: ResultSet, database: str) -> None:
    made_up_trial(results, 0.1, 0.3, note="text", ok=True)
    send(results)
    (child,) = children(database).values()
    assert held(database) == recorded(results)
    assert set(held(database)) == {
        ("id1", step, name, value)
        for step, accuracy in ((1, 0.1), (2, 0.3))
        for name, value in (("epoch", step), ("acc", accuracy), ("ok", 1.0))
    }
    assert child.data.params == {"epochs": "9", "model.depth": "2", "lr": "0.1", "model.width": "8"}
    assert (child.info.status, child.info.run_name) == ("RUNNING", "trial 1")
    assert child.data.tags["best_acc"] == "0.3"
    assert parent(database).data.metrics == {"best_acc": 0.3}
    assert parent(database).info.run_name == "run"


def test_what_a_trial_consumed_is_there_where_it_changed(
    results: ResultSet, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.tracking.backends.mlflow._METRICS", 3)  # so that a trial takes several calls
    trial = made_up_trial(results, 0.1, 0.2, 0.3, 0.4)
    consumed = [None, Consumption(1.0, 2.0), Consumption(1.5, 2.0), Consumption(1.5, 2.5, gpu_use=40.0)]
    trial.reports = [replace(r, consumption=told) for r, told in zip(trial.reports, consumed, strict=True)]
    for _ in range(2):
        send(results)
        (child,) = children(database).values()
        found = {
            name.removeprefix("system/"): [
                (metric.step, metric.value)
                for metric in MlflowClient(database).get_metric_history(child.info.run_id, name)
            ]
            for name in child.data.metrics
            if name.startswith("system/")
        }
        assert found == {
            "host_gib": [(2, 1.0), (3, 1.5)],
            "peak_host_gib": [(2, 2.0), (4, 2.5)],
            "gpu_use": [(4, 40.0)],
        }
    assert held(database) == recorded(results)


def test_what_is_there_is_not_sent_again_by_another_process(results: ResultSet, database: str) -> None:
    trial = made_up_trial(results, 0.1)
    send(results)
    first = {run.info.run_id for run in runs(database)}
    report(trial, 2, 0.3)
    made_up_trial(results, 0.2)
    for _ in range(2):
        send(results)
        assert held(database) == recorded(results)
    assert len(runs(database)) == 3
    assert first < {run.info.run_id for run in runs(database)}


def test_the_host_of_a_trials_run_is_the_trials_own(results: ResultSet, database: str) -> None:
    moved, unknown = made_up_trial(results, 0.1), made_up_trial(results, 0.2)
    moved.host = "worker1"
    send(results)
    moved.host = "worker2"
    send(results)
    tags = {name: run.data.tags["host"] for name, run in children(database).items()}
    assert tags == {moved.id: "worker2", unknown.id: "here"}


def test_a_killed_sender_may_have_sent_more_than_it_noted(results: ResultSet, database: str) -> None:
    trial = made_up_trial(results, 0.1, 0.2)
    sender = mirror(results)
    told = MlflowClient.log_batch

    def killed(client: MlflowClient, run: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        told(client, run, metrics=metrics, params=params)
        if metrics and any(metric.key == "acc" for metric in metrics):
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", killed)
        with pytest.raises(KeyboardInterrupt):
            sender.send(results, results.trials)
    report(trial, 3, 0.3)
    send(results)
    assert held(database) == recorded(results)


def test_steps_that_are_repeated_the_same_are_there_once(results: ResultSet, database: str) -> None:
    trial = made_up_trial(results, 0.1, 0.2, 0.3)
    send(results)
    (before,) = children(database).values()
    report(trial, 2, 0.2, at=100.0)
    report(trial, 3, 0.3, at=100.0)
    report(trial, 4, 0.4, at=100.0)
    send(results)
    (after,) = children(database).values()
    assert held(database) == recorded(results)
    assert before.info.run_id == after.info.run_id


def test_a_trial_whose_steps_came_out_otherwise_gets_its_run_anew(results: ResultSet, database: str) -> None:
    trial = made_up_trial(results, 0.1, 0.2, 0.3)
    made_up_trial(results, 0.2)
    live = mirror(results)
    live.send(results, results.trials)
    report(trial, 2, 0.25, at=100.0)
    live.send(results, [trial])
    assert held(database) == recorded(results)
    report(trial, 3, 0.35, at=100.0)
    send(results)
    assert held(database) == recorded(results)
    assert len(runs(database)) == 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_of_the_compared_may_be_anything(results: ResultSet, database: str, value: float) -> None:
    made_up_trial(results, 0.1, loss=value)
    send(results)
    assert held(database) == recorded(results)
    (metric,) = (row[3] for row in held(database) if row[2] == "loss")
    assert metric == "NaN" if math.isnan(value) else metric == math.copysign(1.7976931348623157e308, value)


def test_more_metrics_than_a_call_takes(results: ResultSet, database: str) -> None:
    many = {f"m{i}": float(i) for i in range(1000)}
    made_up_trial(results, 0.1, 0.2, **many)
    made_up_trial(results, *[i / 1000 for i in range(700)])
    send(results)
    assert held(database) == recorded(results)


def test_names_that_mlflow_refuses_are_made_plain(results: ResultSet, database: str) -> None:
    made_up_trial(results, 0.1, **{"/top%1 @": 0.5})
    results.trials[0].config["größe;"] = "x" * 7000
    send(results)
    (child,) = children(database).values()
    assert child.data.metrics["top_1 _"] == 0.5
    assert len(child.data.params["größe_"]) == 6000


@pytest.mark.parametrize(
    ("status", "live", "over"),
    [
        ("running", "RUNNING", "KILLED"),
        ("paused", "SCHEDULED", "KILLED"),
        ("stopped", "KILLED", "KILLED"),
        ("completed", "FINISHED", "FINISHED"),
        ("failed", "FAILED", "FAILED"),
    ],
)
def test_status_of_a_trial(results: ResultSet, database: str, status: str, live: str, over: str) -> None:
    trial = made_up_trial(results, 0.1, status=status)
    trial.reason, trial.rung = "why", 3
    trial.failures = [Failure("exception", "boom", 1)]
    sender = mirror(results)
    sender.send(results, results.trials)
    (child,) = children(database).values()
    assert child.info.status == live
    told = {name: child.data.tags[name] for name in ("status", "reason", "rung", "failures")}
    assert told == {"status": status, "reason": trial.why, "rung": "3", "failures": "1"}
    sender.close(results)
    (child,) = children(database).values()
    assert child.info.status == over
    assert child.info.end_time == 1000 * trial.reports[-1].timestamp
    assert parent(database).info.status == "KILLED"


def test_a_resumed_search_runs_again_and_ends_once(results: ResultSet, database: str) -> None:
    trial = made_up_trial(results, 0.1)
    mirror(results).close(results)
    assert {run.info.status for run in runs(database)} == {"KILLED"}
    again = mirror(results)
    again.send(results, results.trials)
    assert {run.info.status for run in runs(database)} == {"RUNNING"}
    report(trial, 2, 0.2)
    trial.status, results.provenance["interrupted"] = "completed", False
    again.close(results)
    assert [run.info.status for run in runs(database)] == ["FINISHED", "FINISHED"]
    assert held(database) == recorded(results)


def test_a_search_without_a_result_has_failed(results: ResultSet, database: str) -> None:
    made_up_trial(results, status="failed")
    made_up_trial(results, status="pending")
    results.provenance["interrupted"] = False
    mirror(results).close(results)
    assert parent(database).info.status == "FAILED"
    assert [run.info.status for run in children(database).values()] == ["FAILED"]


def test_a_trial_that_goes_on_from_a_better_one_keeps_its_run(results: ResultSet, database: str) -> None:
    donor, trial = made_up_trial(results, 0.1, 0.5), made_up_trial(results, 0.1)
    live = mirror(results)
    live.send(results, results.trials)
    trial.segments = [Segment(0, trial.config), Segment(1, {"lr": 0.7}, donor.id, 2)]
    trial.config = {"lr": 0.7}
    report(trial, 2, 0.6)
    for sender in (live, mirror(results)):
        sender.send(results, [trial])
        child = children(database)["id2"]
        assert child.data.params["lr"] == "0.2"
        assert '"lr": 0.7' in child.data.tags["schedule"]
        assert held(database) == recorded(results)


def test_a_longer_search_does_not_change_values_of_parameters(results: ResultSet, database: str) -> None:
    made_up_trial(results, 0.1, status="completed")
    mirror(results).close(results)
    results.spec["params"] = {"epochs": 20}
    made_up_trial(results, 0.2)
    send(results)
    params = {run.data.params["epochs"] for run in children(database).values()}
    assert params == {"9", "20"}
    assert '"epochs": 20' in parent(database).data.tags["experiment"]


def test_two_searches_of_one_experiment_lie_side_by_side(tmp_path: Path, results: ResultSet, database: str) -> None:
    other = replace(results, provenance=results.provenance | {"id": "two"}, trials=[])
    made_up_trial(results, 0.1)
    made_up_trial(other, 0.9)
    send(results)
    send(other)
    assert len(runs(database)) == 4
    assert len({run.info.experiment_id for run in runs(database)}) == 1


@pytest.mark.parametrize(
    ("objective", "metrics", "tag"),
    [
        ([("acc", "max"), ("size", "min")], {"best_acc": 0.9, "best_size": 3.0}, {"pareto_front": "id2, id1"}),
        ([("acc", "max")], {"best_acc": 0.9}, {"best_trial": "id2"}),
        ([("size", "min")], {"best_size": 3.0}, {"best_trial": "id1"}),
    ],
)
def test_the_parent_tells_the_best(
    results: ResultSet, database: str, objective: Any, metrics: dict[str, float], tag: dict[str, str]
) -> None:
    results.spec["objective"] = [{"metric": metric, "mode": mode} for metric, mode in objective]
    made_up_trial(results, 0.2, size=3)
    made_up_trial(results, 0.9, size=5)
    send(results)
    assert parent(database).data.metrics == metrics
    assert tag.items() <= parent(database).data.tags.items()


def test_the_best_trial_lies_with_the_search(results: ResultSet, database: str, tmp_path: Path) -> None:
    trial = made_up_trial(results, 0.9, status="completed")
    results.folder.filesystem.create_dir(results.folder.path)
    results.folder.write("report.html", b"<html>")
    results.folder.write("experiment.yaml", b"name: made_up")
    folder = tmp_path / "run" / "checkpoint_1"
    folder.mkdir()
    (folder / "weights").write_bytes(b"w")
    trial.best = replace(trial.best, checkpoint="checkpoint_1")  # type: ignore[type-var]
    results.save_best()
    results.provenance["interrupted"] = False
    mirror(results).close(results)
    client, run = MlflowClient(database), parent(database).info.run_id
    assert {item.path for item in client.list_artifacts(run)} == {"report.html", "experiment.yaml", "best"}
    assert {item.path for item in client.list_artifacts(run, "best")} == {
        "best/config.json",
        "best/metrics.json",
        "best/checkpoint",
    }
    assert Path(client.download_artifacts(run, "best/checkpoint/weights")).read_bytes() == b"w"
    assert str(tmp_path / "mlartifacts") in parent(database).info.artifact_uri


def test_a_deleted_experiment_is_said(results: ResultSet, database: str) -> None:
    send(results)
    client = MlflowClient(database)
    client.delete_experiment(client.get_experiment_by_name("made_up").experiment_id)
    with pytest.raises(EnvironmentFailure, match=r"'made_up' is deleted: restore it there, or name another"):
        mirror(results)


def test_passwords_are_not_shown() -> None:
    with pytest.raises(ValidationError) as caught:
        MlflowTracking(uri="postgresql://me:secret@host/db")
    assert "secret" not in str(caught.value)
