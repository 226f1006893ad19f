"""An address at which no Ray answers, or none that lets us in, is said within seconds."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHIN_S = 60.0
"""Ray itself takes two to four minutes."""


def refused(address: str, **environment: str) -> str:
    """The one line that `run` ends with, with exit status 4."""
    command = [sys.executable, "-m", "tuner", "run", "experiments/quickstart.yaml", "--address", address]
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | environment, timeout=200)
    assert time.monotonic() - begun < WITHIN_S, done.stderr
    assert done.returncode == 4, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert len(lines) == 1, done.stderr
    assert address in lines[0]
    return lines[0]


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A port at which connections are taken, and nothing is said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def port(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_nothing_listens(silent: socket.socket) -> None:
    address = port(silent)
    silent.close()
    assert "Connection refused; is it running" in refused(address)


@pytest.mark.processes
def test_a_host_that_drops_packets() -> None:
    """A full queue of connections: the kernel answers no more of them."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = []
        for _ in range(8):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(server.getsockname())
            waiting.append(client)
        time.sleep(0.2)
        assert "timed out; is it running" in refused(port(server))
        for client in waiting:
            client.close()


@pytest.mark.processes
def test_a_server_that_says_nothing(silent: socket.socket) -> None:
    assert re.search("something listens there.*DEADLINE_EXCEEDED.*port 6379", refused(port(silent)))


def test_an_ssh_port(silent: socket.socket) -> None:
    kept = []

    def greet() -> None:
        while True:
            try:
                connection, _ = silent.accept()
            except OSError:
                return
            connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
            kept.append(connection)

    thread = threading.Thread(target=greet, daemon=True)
    thread.start()
    assert "something listens there, and does not answer as Ray's head does (UNAVAILABLE" in refused(port(silent))
    silent.shutdown(socket.SHUT_RDWR)
    thread.join(5)
    for connection in kept:
        connection.close()


def test_a_web_server() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert "something listens there" in refused(f"127.0.0.1:{server.server_port}")
        server.shutdown()


def test_a_cluster_that_asks_for_a_token_and_the_file_of_ours_is_not_there(tmp_path: Path) -> None:
    import grpc

    class Refuses(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")
            )

    server = grpc.server(ThreadPoolExecutor(1), handlers=[Refuses()])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        assert "there is none here" in refused(address, RAY_AUTH_TOKEN_PATH=str(tmp_path / "missing"))
    finally:
        server.stop(None)
