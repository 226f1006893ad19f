"""``tuner watch``: a page of one's own, for whoever has the token."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from tests.live.journals import Journal
from tests.live.servers import WITHIN_S
from tuner.cli import cli
from tuner.errors import EnvironmentFailure, InputError
from tuner.live.http_server import listening
from tuner.live.token_door import local_app
from tuner.runs.commands import waiting_commands
from tuner.storage.folder import RunFolder

TOKEN = "a-token"


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    journal = Journal(tmp_path)
    journal.start("a")
    app = local_app(lambda name: journal.folder if name == "run" else None, lambda: [journal.folder], "me@here", TOKEN)
    return TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False)


def test_only_who_has_the_token_gets_in(client: TestClient) -> None:
    for address in ("/runs/run", "/runs/run/data", "/runs/run?token=", "/runs/run?token=b", "/live/x/run.js", "/none"):
        refused = client.get(address)
        assert refused.status_code == 403, address
        assert "`tuner watch` printed" in refused.text
    let_in = client.get(f"/runs/run?token={TOKEN}")
    assert (let_in.status_code, let_in.headers["Location"]) == (303, "/runs/run")
    assert {"HttpOnly", "SameSite=strict"} <= set(let_in.headers["Set-Cookie"].split("; "))
    assert client.get("/runs/run").status_code == 200
    assert client.get("/runs/other").status_code == 404
    assert client.get("/runs/run/data").json()["trials"] == [[1, "a", ["0.1"], ""]]


def test_another_page_cannot_send_commands(client: TestClient) -> None:
    client.get(f"/runs/run?token={TOKEN}")
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999"):
        answer = client.post("/runs/run/commands", json={"do": "pause", "arguments": {}}, headers={"Origin": origin})
        assert answer.status_code == 403
    assert client.get(f"/%2Fevil.example/?token={TOKEN}").headers["Location"].startswith("/evil.example")


def test_prometheus_needs_no_token(client: TestClient) -> None:
    assert 'tuner_run_trials{run="run"' in client.get("/metrics").text


def invoke(*arguments: str) -> None:
    """``tuner watch``, in this process."""
    CliRunner().invoke(cli, ["watch", *arguments, "--no-open"], catch_exceptions=False)


def test_a_port_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    Journal(tmp_path)
    with listening("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(EnvironmentFailure, match=f"port {port} .*something else listens there"):
            invoke(str(tmp_path / "run"), "--port", port)


def test_a_run_that_there_is_not_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run 'no'"):
        invoke("no", "--storage", str(tmp_path))


@pytest.mark.processes
def test_it_serves_until_ctrl_c(tmp_path: Path) -> None:
    Journal(tmp_path).start("a")
    command = [sys.executable, "-m", "tuner", "watch", str(tmp_path / "run"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = json.loads("".join(process.stdout.readline() for _ in range(3)))["address"]
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert b"data-run" in opener.open(address, timeout=WITHIN_S).read()
        events = opener.open(address.partition("?")[0] + "/events", timeout=WITHIN_S)
        assert b"retry" in events.readline()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(address.partition("?")[0], timeout=WITHIN_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0
        events.close()
    assert waiting_commands(RunFolder.at(tmp_path / "run")) == ([], [])
