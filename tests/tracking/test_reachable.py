"""What is said before a search begins that could not be tracked."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tuner.errors import EnvironmentFailure
from tuner.experiment.tracking import MlflowTracking, Tracking, WandbTracking
from tuner.storage.folder import RunFolder
from tuner.tracking import check_reachable


class Answers(BaseHTTPRequestHandler):
    status, kind = 200, "application/json"
    asked: list[str | None]

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Authorization"))
        self.send_response(self.status)
        self.send_header("Content-Type", self.kind)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[str | None]]]:
    status, kind = request.param
    asked: list[str | None] = []
    listening = HTTPServer(("127.0.0.1", 0), type("One", (Answers,), {"status": status, "kind": kind, "asked": asked}))
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_port}", asked
    listening.shutdown()
    listening.server_close()


def said(tmp_path: Path, uri: str | None, required: bool = True) -> str:
    """The complaint about ``uri``; empty where there is none."""
    notices: list[str] = []
    tracking = Tracking(mlflow=MlflowTracking(uri=uri, required=required))
    try:
        check_reachable(tracking, RunFolder.at(tmp_path), (), notices.append)
    except EnvironmentFailure as error:
        return str(error)
    return "".join(notices)


@pytest.mark.parametrize(
    ("server", "complaint"),
    [
        ((200, "application/json"), ""),
        ((404, "text/html"), "is not an MLflow server (it answers HTTP 404)"),
        ((200, "text/html"), "is not an MLflow server (it answers HTTP 200)"),
        ((401, "text/html"), "refuses the credentials (HTTP 401): set MLFLOW_TRACKING_USERNAME"),
    ],
    indirect=["server"],
)
def test_a_server_is_asked(server: tuple[str, list[str | None]], tmp_path: Path, complaint: str) -> None:
    uri, _ = server
    text = said(tmp_path, uri)
    assert complaint in text
    assert bool(text) == bool(complaint)
    if text:
        assert text.startswith(f"MLflow at {uri}: ")
        assert text.endswith("(to search without it: tracking.mlflow.required: false)")
        assert said(tmp_path, uri, required=False) == f"NOTICE: {text}"


@pytest.mark.parametrize("server", [(200, "application/json")], indirect=True)
def test_the_credentials_of_mlflow_are_used(
    server: tuple[str, list[str | None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, asked = server
    monkeypatch.setenv("HOME", str(tmp_path))
    said(tmp_path, uri)
    (tmp_path / ".mlflow").mkdir()
    (tmp_path / ".mlflow" / "credentials").write_text(
        "[mlflow]\nmlflow_tracking_username = a\nmlflow_tracking_password = b\n"
    )
    said(tmp_path, uri)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
    said(tmp_path, uri)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t")
    assert asked == [None, "Basic YTpi", "Basic bWU6c2VjcmV0"]


def test_nothing_listens(tmp_path: Path) -> None:
    assert "nothing answers there; is the server running?" in said(tmp_path, "http://127.0.0.1:9")


def test_a_database_is_opened(tmp_path: Path, database: str) -> None:
    assert said(tmp_path, database) == said(tmp_path, None) == ""
    assert f"there is no folder {tmp_path}/no/such" in said(tmp_path, f"sqlite:///{tmp_path}/no/such/x.db")
    assert said(tmp_path / "new", None) == said(tmp_path, f"sqlite:///{tmp_path}/new.db") == ""
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]  # looking makes nothing
    (tmp_path / "text.db").write_text("this is no database, only some text" * 50)
    assert "file is not a database" in said(tmp_path, f"sqlite:///{tmp_path}/text.db")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("create table mine (x integer)")
    other.close()
    assert "is a database, but not MLflow's" in said(tmp_path, f"sqlite:///{tmp_path}/other.db")


def test_a_database_without_its_driver(tmp_path: Path) -> None:
    assert "needs the package" in said(tmp_path, "mssql+pymssql://host/db")


def test_wandb_without_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    folder, tracking = RunFolder.at(tmp_path), Tracking(wandb=WandbTracking())
    with pytest.raises(EnvironmentFailure, match="not logged in: run wandb login"):
        check_reachable(tracking, folder, (), print)
    check_reachable(Tracking(wandb=WandbTracking(mode="offline")), folder, (), print)


def test_a_database_of_optuna_is_not_taken_for_mlflows(tmp_path: Path) -> None:
    """Both have alembic's table; MLflow would put its own beside the study's."""
    import optuna

    uri = f"sqlite:///{tmp_path}/study.db"
    optuna.create_study(storage=uri)
    with sqlite3.connect(tmp_path / "study.db") as database:
        before = list(database.execute("select name from sqlite_master order by name"))
        assert ("alembic_version",) in before
    with pytest.raises(
        EnvironmentFailure, match=r"is a database of Optuna, not MLflow's; correct tracking\.mlflow\.uri"
    ):
        check_reachable(Tracking(mlflow=MlflowTracking(uri=uri)), RunFolder.at(tmp_path), (), print)
    with sqlite3.connect(tmp_path / "study.db") as database:
        assert list(database.execute("select name from sqlite_master order by name")) == before
    database.close()
