"""A real server: it is killed, asked twice, flooded, and its clients do not read."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.disks import fill, needs_root, small_disk
from tests.service.http import Service as Server
from tests.service.plain_queue import PlainQueue
from tests.service.server_process import cluster_at, shared
from tests.tracking.servers import free_port
from tuner.errors import EnvironmentFailure, InputError, LockLost
from tuner.jobs.client import job_id
from tuner.live.http_server import Server as HttpServer
from tuner.live.http_server import listening, url_of
from tuner.service import api
from tuner.service.check import Checked
from tuner.service.client import Service
from tuner.service.limits import Limits
from tuner.service.loop import Loop
from tuner.service.serve import serve
from tuner.service.tokens import Tokens
from tuner.storage.folder import RunFolder

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0


class Process:
    """A service in a process of its own."""

    def __init__(self, storage: Path, port: int, *cluster: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.service.server_process", str(storage), str(port), *cluster],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until_it_answers(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{self.url}\n", self.process.communicate()

    def end(self, number: int) -> tuple[int, str]:
        """(exit status, stderr) after a signal."""
        self.process.send_signal(number)
        told = self.process.communicate(timeout=WAIT_S)[1]
        return self.process.returncode, told


@contextlib.contextmanager
def process(storage: Path, port: int, *cluster: str) -> Iterator[Process]:
    found = Process(storage, port, *cluster)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
        found.process.communicate()


class Submitting:
    """A user who submits one search after the other, without names, whatever happens to the service."""

    def __init__(self, name: str, service: Service) -> None:
        self.name, self._service, self._over = name, service, threading.Event()
        self.names: list[str] = []
        self.errors: list[Exception] = []
        self._thread = threading.Thread(target=self._submit)
        self._thread.start()

    def _submit(self) -> None:
        while not self._over.is_set():
            try:
                self.names.append(self._service.submit(file="quickstart")["name"])
            except EnvironmentFailure as error:
                if "does `tuner serve` run there" not in str(error):
                    self.errors.append(error)
                    return
                time.sleep(0.05)  # nothing was sent
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.errors.append(error)
                return

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def killed(folder: Path, rounds: int) -> None:
    """Kills the service so often, while two users submit: what they were told of is there, and nothing else.

    The cluster stays, as Ray does: each search has one job at most.
    """
    storage, cluster = folder / "runs", str(folder / "cluster")
    with shared(cluster):
        found, told = _killed(storage, cluster, rounds)
        started = cluster_at(cluster).started()
    assert sorted((search["name"], search["user"]) for search in found) == sorted(told)
    assert len(found) == len({name for name, _ in told}) > rounds / 2
    assert {search["state"] for search in found} <= {"queued", "starting", "running"}
    running = {job_id(search["name"], 1) for search in found if search["state"] == "running"}
    assert running
    assert running <= set(started) <= {job_id(name, 1) for name, _ in told}


def _killed(storage: Path, cluster: str, rounds: int) -> tuple[list[Any], list[tuple[str, str]]]:
    """The searches in the end, and those that users were told of, each with its user."""
    port, tokens = free_port(), Tokens(RunFolder.at(storage))
    address = f"http://127.0.0.1:{port}"
    users = [Submitting(user, Service(address, tokens.add(user))) for user in ("ada", "bob")]
    try:
        for _ in range(rounds):
            with process(storage, port, cluster) as server:
                server.until_it_answers()
                time.sleep(random.uniform(0.0, 0.5))
                server.process.kill()
        with process(storage, port, cluster) as server:
            server.until_it_answers()
            before = len(users[0].names)
            while len(users[0].names) < before + 2 and not users[0].errors:
                time.sleep(0.05)
            for user in users:
                user.end()
            found = users[0]._service.searches()
            status, told = server.end(signal.SIGTERM)
            assert (status, "Traceback" in told) == (0, False), told
    finally:
        for user in users:
            user.end()
    assert [user.errors for user in users] == [[], []]
    return found, [(name, user.name) for user in users for name in user.names]


@pytest.mark.processes
def test_a_killed_service_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    killed(tmp_path, rounds=3)


@pytest.mark.processes
@pytest.mark.timeout(1200)
def test_a_service_that_is_killed_fifty_times(tmp_path: Path) -> None:
    killed(tmp_path, rounds=50)


@needs_root
@pytest.mark.processes
def test_a_full_disk_refuses_a_search_and_loses_none(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        port, token = free_port(), Tokens(RunFolder.at(disk / "runs")).add("ada")
        service = Service(f"http://127.0.0.1:{port}", token)
        with process(disk / "runs", port) as server:
            server.until_it_answers()
            names = [service.submit(file="quickstart")["name"]]
            ballast = fill(disk)

            def submit_until_refused() -> None:
                for _ in range(100):  # ext4 still has some blocks for small files
                    names.append(service.submit(file="quickstart")["name"])

            with pytest.raises(EnvironmentFailure, match="the storage fails: No space left on device"):
                submit_until_refused()
            assert sorted(search["name"] for search in service.searches()) == sorted(names)
            server.process.kill()
        with process(disk / "runs", port) as server:
            server.until_it_answers()
            assert sorted(search["name"] for search in service.searches()) == sorted(names)
            ballast.unlink()
            names.append(service.submit(file="quickstart")["name"])
            assert sorted(search["name"] for search in service.searches()) == sorted(names)
            assert server.end(signal.SIGTERM)[0] == 0


@pytest.mark.processes
def test_a_second_service_and_a_port_in_use(tmp_path: Path) -> None:
    """Each is one line, and exit status 4."""
    with process(tmp_path / "a", free_port()) as first:
        first.until_it_answers()
        port = int(first.url.rpartition(":")[2])
        for storage, at, line in (
            (tmp_path / "a", free_port(), "another service works on the storage"),
            (tmp_path / "b", port, f"port {port} of 127.0.0.1: something else listens there"),
        ):
            with process(storage, at) as second:
                told = second.process.communicate(timeout=WAIT_S)[1]
                assert second.process.returncode == 4
                assert line in told
                assert len(told.splitlines()) == 1
        assert first.end(signal.SIGINT) == (
            0,
            f"NOTICE: nobody has a token yet: tuner token add USER --storage {tmp_path / 'a'}\n",
        )


@pytest.mark.processes
def test_the_command_serves_while_its_cluster_is_gone(tmp_path: Path) -> None:
    words = ["serve", "--storage", str(tmp_path), "--port", "0", "--jobs-address", f"http://127.0.0.1:{free_port()}"]
    token = Tokens(RunFolder.at(tmp_path)).add("ada")
    server = subprocess.Popen(
        [sys.executable, "-m", "tuner", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        service = Service(server.stdout.readline().strip(), token)
        assert "Connection refused" in service.cluster()["problem"]
        assert service.submit(file="quickstart")["state"] == "queued"
        assert not service.me()["admin"]
        (tmp_path / ".service/team.yaml").write_text("members: {ada: {admin: true}}")
        give_up = time.monotonic() + WAIT_S
        while not service.me()["admin"]:
            assert time.monotonic() < give_up, "the team is not read again"
            time.sleep(0.2)
        server.send_signal(signal.SIGTERM)
        waits, read_again = server.communicate(timeout=WAIT_S)[1].splitlines()
        assert server.returncode == 0
        assert waits.startswith("NOTICE:")
        assert waits.endswith("the queue waits, and looks again")
        assert read_again == f"NOTICE: {tmp_path}/.service/team.yaml was read again"
    finally:
        server.kill()
        server.communicate()


def test_an_open_address_without_tls_has_a_notice(tmp_path: Path) -> None:
    told: list[str] = []
    with listening("0.0.0.0", 0) as listener:
        queue = PlainQueue()
        queue.broken = LockLost("another process has it")
        with pytest.raises(LockLost):
            serve(queue, RunFolder.at(tmp_path), listener, told.append, told.append)
    (nobody, is_open) = told
    assert nobody.startswith("NOTICE: nobody has a token yet")
    assert "open to the network, and sends tokens unencrypted" in is_open


# In this process


@pytest.mark.processes
@pytest.mark.parametrize("signals", [1, 2])
def test_open_streams_do_not_keep_a_server_that_is_to_end(signals: int) -> None:
    async def forever(scope: object, receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
        while True:
            await receive()  # type: ignore[operator]

    with listening("127.0.0.1", 0) as listener:
        server = HttpServer(forever)
        thread = threading.Thread(target=server.run_at, args=(listener,))
        thread.start()
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert client.recv(9)
            for _ in range(signals):
                server.handle_exit(signal.SIGTERM, None)
            thread.join(WAIT_S)
    assert not thread.is_alive()


def test_clients_that_never_read_hold_up_nobody_and_lose_their_connections(tmp_path: Path) -> None:
    service = Server(tmp_path, Limits(transfers=3))
    service.search("q")
    (tmp_path / "q").mkdir()
    with (tmp_path / "q/large").open("wb") as large:
        large.truncate(2**30)
    with service.running(read_s=2.0) as url:
        ada, bob = Service(url, service.token("ada")), Service(url, service.token("bob"))
        asked = f"GET /v1/searches/q/files HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {service.token('ada')}\r\n\r\n"
        with contextlib.ExitStack() as clients:
            for _ in range(3):
                client = clients.enter_context(socket.socket())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(("127.0.0.1", urllib.parse.urlsplit(url).port))
                client.sendall(asked.encode())
                assert client.recv(1)
            assert bob.searches()[0]["name"] == "q"
            assert ada.searches()[0]["name"] == "q"
            with pytest.raises(EnvironmentFailure, match="ada has 3 transfers of files at once"):
                ada.fetch("q", tmp_path / "copy")
            (tmp_path / "q/large").write_bytes(b"x")
            deadline = time.monotonic() + WAIT_S
            while time.monotonic() < deadline:  # their connections end by themselves
                with contextlib.suppress(EnvironmentFailure):
                    assert (ada.fetch("q", tmp_path / "copy") / "large").read_bytes() == b"x"
                    return
                time.sleep(0.2)
    pytest.fail("the transfers of clients that do not read never end")


def test_slow_checks_of_one_user_do_not_hold_up_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def check(project: Path, file: str, overrides: list[str], has_gpus: bool, mlflow: str | None) -> Checked:
        if "slow=1" in overrides:
            assert over.wait(WAIT_S)
        return Checked("exp", {"CPU": 1.0}, 1)

    monkeypatch.setattr(api, "check", check)
    service = Server(tmp_path)
    with service.running() as url:
        ada, bob = Service(url, service.token("ada")), Service(url, service.token("bob"))
        slow = [
            threading.Thread(target=ada.submit, kwargs={"file": "quickstart", "overrides": ["slow=1"], "name": f"a{k}"})
            for k in range(3)
        ]
        try:
            for one in slow:
                one.start()
            time.sleep(0.5)  # they wait for their checks
            assert bob.submit(file="quickstart", name="b")["state"] == "queued"
            assert [entry.name for entry in service.queue.entries()] == ["b"]
        finally:
            over.set()
            for one in slow:
                one.join()
    assert len(service.queue.entries()) == 4


def test_logins_that_never_come_hold_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.service.pages.FORM_S", 0.5)
    service = Server(tmp_path, Limits(refused_rate=1e-3, refused_burst=10.0))
    with service.running() as url, contextlib.ExitStack() as open_ones:
        host, port = url.removeprefix("http://").split(":")
        silent = [open_ones.enter_context(socket.create_connection((host, int(port)))) for _ in range(8)]
        for one in silent:
            one.sendall(
                f"POST /login HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {url}\r\nContent-Length: 90\r\n\r\n".encode()
            )
        for _ in range(20):  # a watchdog takes nothing of the logins of this address
            with urllib.request.urlopen(f"{url}/healthz", timeout=WAIT_S) as alive:
                assert alive.status == 200
        with urllib.request.urlopen(f"{url}/login", timeout=WAIT_S) as page:
            assert page.status == 200
        silent[0].settimeout(WAIT_S)
        assert silent[0].recv(1000).startswith(b"HTTP/1.1 408")


def test_a_flood_of_one_user_leaves_the_others_alone(tmp_path: Path) -> None:
    service = Server(tmp_path, Limits(rate=1e-3, burst=20.0))
    with service.running() as url:
        ada, bob = Service(url, service.token("ada")), Service(url, service.token("bob"))
        for _ in range(20):
            ada.me()
        for _ in range(100):
            with pytest.raises(EnvironmentFailure, match="too many requests"):
                ada.me()
        assert [bob.me()["user"] for _ in range(10)] == ["bob"] * 10


@pytest.mark.parametrize("host", ["256.1.1.1", "nothing.invalid", "a" * 300])
def test_a_host_that_is_none(host: str) -> None:
    with pytest.raises(InputError, match="--host"), listening(host, 0):
        pass


def test_an_address_is_shown_as_browsers_take_it() -> None:
    with listening("127.0.0.1", 0) as listener:
        assert url_of(listener).startswith("http://127.0.0.1:")
    with listening("::1", 0) as listener:
        assert url_of(listener).startswith("http://[::1]:")


# The loop


def test_a_fault_is_told_once_and_the_loop_continues() -> None:
    queue, told = PlainQueue(), list[str]()
    loop = Loop(queue, told.append, failed=lambda: None)
    for broken in (None, EnvironmentFailure("the cluster is gone"), EnvironmentFailure("the cluster is gone"), None):
        queue.broken = broken
        loop.once()
    queue.broken = OSError(28, "No space left on device")
    loop.once()
    assert told == [
        "NOTICE: the cluster is gone; the queue waits, and looks again",
        "NOTICE: the queue continues",
        "NOTICE: the storage fails: No space left on device; the queue waits, and looks again",
    ]
    assert queue.steps == 5


def test_a_fault_of_one_search_is_told_once_and_is_none_of_the_queue() -> None:
    queue, told = PlainQueue(), list[str]()
    loop = Loop(queue, told.append, failed=lambda: None)
    for faults in ({"a": "its folder is gone"}, {"a": "its folder is gone", "b": "refused"}, {}, {"b": "refused"}):
        queue.faults = faults
        loop.once()
    assert told == [
        "NOTICE: search a: its folder is gone; the others continue",
        "NOTICE: search b: refused; the others continue",
        "NOTICE: search b: refused; the others continue",
    ]


@pytest.mark.parametrize("error", [LockLost("another process has it"), ZeroDivisionError("a bug")])
def test_what_no_other_pass_mends_ends_the_service(error: Exception) -> None:
    queue, ended = PlainQueue(), threading.Event()
    queue.broken = error
    loop = Loop(queue, lambda text: None, ended.set, every_s=0.0)
    loop.start()
    assert ended.wait(WAIT_S)
    with pytest.raises(type(error), match=str(error)):
        loop.end()


def test_the_loop_ends_when_it_is_told_to() -> None:
    queue = PlainQueue()
    loop = Loop(queue, lambda text: None, lambda: None, every_s=0.0)
    loop.start()
    while queue.steps < 3:
        time.sleep(0.01)
    loop.end()
