"""Real servers that go away and come back, and searches that are killed: MLflow holds what results.parquet holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tests.faults.search import EPOCHS, Search, check_complete, experiment
from tests.tracking.held import children, held, parent, recorded, runs
from tests.tracking.servers import MlflowServer, Postgres
from tuner import load_run
from tuner.cli import cli
from tuner.storage.folder import RunFolder
from tuner.storage.lock import locked
from tuner.tracking.follower import TRACKING_LOCK

pytestmark = pytest.mark.processes


@pytest.fixture
def sqlite_server(tmp_path: Path) -> Iterator[MlflowServer]:
    made = MlflowServer(tmp_path, f"sqlite:///{tmp_path}/server.db")
    yield made
    made.stop()


@pytest.fixture
def postgres_server(tmp_path: Path) -> Iterator[MlflowServer]:
    database = Postgres(tmp_path)
    made = MlflowServer(tmp_path, database.uri)
    yield made
    made.stop()
    database.stop()


def tracked(uri: str | None, **keys: Any) -> dict[str, Any]:
    return experiment("random", workers=2, tracking={"mlflow": {"uri": uri} if uri else {}}, **keys)


def waiting(gate: Path) -> dict[str, Any]:
    """The parameters of trials that make two reports, and others when ``gate`` exists."""
    return {"epochs": EPOCHS, "seconds": 0.4, "waits_after": 2, "gate": str(gate)}


def check_parity(uri: str, search: Search) -> None:
    """All trials, each once, none running, with what results.parquet holds."""
    check_complete(search.run)
    results = load_run(search.run)
    assert children(uri).keys() == {trial.id for trial in results.trials}
    assert held(uri) == recorded(results)
    expected = {trial.id: "FINISHED" if trial.status == "completed" else "KILLED" for trial in results.trials}
    assert {trial: run.info.status for trial, run in children(uri).items()} == expected
    assert parent(uri).info.status == "FINISHED"
    best = MlflowClient(uri).list_artifacts(parent(uri).info.run_id, "best")
    assert {item.path for item in best} == {"best/config.json", "best/metrics.json", "best/checkpoint"}


@pytest.mark.parametrize("server", ["sqlite_server", "postgres_server"])
def test_a_server_that_goes_away_and_comes_back(tmp_path: Path, server: str, request: pytest.FixtureRequest) -> None:
    mlflow: MlflowServer = request.getfixturevalue(server)
    gate = tmp_path / "gate"
    search = Search(tmp_path).start(tracked(mlflow.uri, params=waiting(gate)))
    search.until(lambda: search.reports() >= 2 and len(runs(mlflow.uri)) >= 2)
    mlflow.stop()
    gate.touch()
    seen = search.reports()
    search.until(lambda: search.reports() >= seen + 4)  # it does not wait
    gate.unlink()
    mlflow.start()
    search.until(lambda: f"MLflow at {mlflow.uri} is back; what was missing is sent" in search._said.read_text())
    gate.touch()
    status, said = search.wait()
    assert status == 0, said
    assert said.count("the search continues, and what is missing is sent when it can be") == 1
    check_parity(mlflow.uri, search)


def test_a_server_that_stays_away_is_sent_the_run_later(
    tmp_path: Path, sqlite_server: MlflowServer, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = tmp_path / "gate"
    search = Search(tmp_path).start(tracked(sqlite_server.uri, params=waiting(gate)))
    search.until(lambda: search.reports() >= 2)
    sqlite_server.stop()
    gate.touch()
    status, said = search.wait()
    assert status == 0, said
    assert "NOTICE: not all was sent: MLflow at" in said
    assert f"to send it: python -m tuner sync {search.run}" in said
    sqlite_server.start()
    for _ in range(2):
        cli.main(["track", str(search.run)], standalone_mode=False)
        assert "trials 8, reports" in capsys.readouterr().out
        check_parity(sqlite_server.uri, search)


def test_a_server_that_is_not_there_is_said_before_the_search(tmp_path: Path) -> None:
    uri = "http://127.0.0.1:9"
    search = Search(tmp_path).start(tracked(uri))
    status, said = search.wait()
    assert status == 4
    assert said.strip() == (
        f"error: MLflow at {uri}: nothing answers there; is the server running?; "
        "correct tracking.mlflow.uri (to search without it: tracking.mlflow.required: false)"
    )
    assert not search.run.exists()


def test_a_killed_search_has_one_run_a_trial_after_its_resume(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/runs/mlflow.db"
    search = Search(tmp_path).start(tracked(None, seconds=0.2))
    search.until(lambda: search.reports() >= 8, timeout=90).kill()
    with locked(RunFolder.at(search.run), TRACKING_LOCK, patience=200):
        assert {run.info.status for run in runs(uri)} <= {"KILLED", "FINISHED"}
    search.start()
    seen = search.reports()
    search.until(lambda: search.reports() >= seen + 3, timeout=90).kill()
    search.finish()  # at once: the follower of the killed one may still be at work
    check_parity(uri, search)


def test_a_population_that_changes_its_configurations(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/runs/mlflow.db"
    scheduler = {"kind": "pbt", "time_attr": "epoch", "max_t": 9, "perturbation_interval": 2, "quantile_fraction": 0.5}
    search = Search(tmp_path).start(tracked(None, scheduler=scheduler, budget={"trials": 4}))
    status, said = search.wait()
    assert status == 0, said
    results = load_run(search.run)
    assert any(len(trial.segments) > 1 for trial in results.trials)
    assert held(uri) == recorded(results)
    assert len(runs(uri)) == 5
    assert any("schedule" in run.data.tags for run in children(uri).values())


def test_trials_that_fail_and_are_tried_again(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/runs/mlflow.db"
    spec = tracked(None)
    spec["trainable"] = spec["trainable"].replace(":quadratic", ":misbehaving")
    spec["params"] |= {"how": "raises", "at": 4, "flag": str(tmp_path / "flag")}
    search = Search(tmp_path).start(spec)
    status, said = search.wait()
    assert status == 0, said
    assert (tmp_path / "flag").exists()
    check_parity(uri, search)
    assert [run.data.tags["failures"] for run in children(uri).values() if "failures" in run.data.tags] == ["1"]
