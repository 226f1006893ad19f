"""An object store that cannot be reached for a while, with everything that a search does to it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from tests.faults.search import EPOCHS, ROOT, experiment
from tests.journals import read_journal
from tuner.storage.folder import RunFolder

pytestmark = pytest.mark.faults


class Gate:
    """Between a search and a server: closes every connection while it is `shut`."""

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.shut = False
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:  # the test is over
                return
            if self.shut:
                client.close()
                continue
            server = socket.create_connection(self._to)
            self._open |= {client, server}
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                self._open.discard(end)
                end.close()

    def close(self) -> None:
        """Cuts all connections, and lets nobody in."""
        self.shut = True
        for end in list(self._open):
            with contextlib.suppress(OSError):  # it has just been closed
                end.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        self._server.close()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Gate, Callable[[int], str]]]:
    """A gate before an S3 server with one bucket, and the storage as it is written for a port."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anybody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for method, path in (("POST", "moto-api/reset"), ("PUT", "bucket")):
        urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/{path}", method=method)).close()
    gate = Gate(port)
    yield gate, lambda at: f"s3://bucket/runs?scheme=http&endpoint_override=127.0.0.1:{at}&region=us-east-1"
    gate.end()
    server.stop()


def test_a_store_that_is_away_for_a_while_costs_nothing(
    tmp_path: Path, store: tuple[Gate, Callable[[int], str]]
) -> None:
    gate, at = store
    (tmp_path / "x.yaml").write_text(json.dumps(experiment(seconds=0.1, budget={"trials": 3})))
    words = ["run", "x.yaml", "--name", "run", "--storage", at(gate.port)]
    said = tmp_path / "said"
    with said.open("w") as file:
        search = subprocess.Popen(
            [sys.executable, "-m", "tuner", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=file,
        )
    run = RunFolder.at(at(gate._to[1])) / "run"  # not through the gate

    def until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert search.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.05)

    try:
        until(lambda: sum(event["what"] == "reported" for event in read_journal(run).events) >= 3)
        gate.close()
        until(lambda: "cannot be used" in said.read_text())
        gate.shut = False
        assert search.wait(120) == 0, said.read_text()
    finally:
        search.kill()
        search.wait()
    assert "can be used again" in said.read_text()
    assert "Traceback" not in said.read_text()
    journal = read_journal(run)
    assert not journal.damage
    assert not [event for event in journal.events if event["what"] == "failed attempt"]
    reports = [(event["trial"], event["step"]) for event in journal.events if event["what"] == "reported"]
    assert len(set(reports)) == len(reports)
    assert {step for _, step in reports} == set(range(1, EPOCHS + 1))
    assert journal.events[-1]["what"] == "left"
