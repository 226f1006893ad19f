"""The queue on a real Ray with a dashboard: two users share four CPUs of this machine."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.journals import read_journal
from tuner.errors import EnvironmentFailure
from tuner.plan.cluster import free_port
from tuner.runs.loading import load_latest
from tuner.service.cluster import Capacity, RayCluster
from tuner.service.code_store import CodeStore
from tuner.service.interface import Submission
from tuner.service.queue import SearchQueue
from tuner.service.standing import standing
from tuner.service.team import Team
from tuner.storage.folder import RunFolder

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
WAIT_S = 240.0

TRAIN = """
import json, tempfile, time
from pathlib import Path
from ray import tune

def train(config):
    begun = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            begun = json.loads(Path(folder, "state.json").read_text())
    for epoch in range(begun + 1, 1000):
        time.sleep(0.5)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps(epoch))
            tune.report({"epoch": epoch, "score": config["x"]}, checkpoint=tune.Checkpoint.from_directory(folder))
"""

EXPERIMENT = """
trainable: train.py:train
search_space: {x: {uniform: [0, 1]}}
objective: {metric: score, mode: max}
search: {kind: random, seed: 0}
budget: {trials: 8}
resources: {cpu: 1, gpu: 0}
"""


@pytest.fixture
def address() -> Iterator[str]:
    """Of the dashboard of a Ray of its own, whose folder no other Ray of this machine uses."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    ports = {name: free_port("127.0.0.1") for name in ("--port", "--dashboard-port", "--dashboard-agent-listen-port")}
    options = [*(f"{name}={port}" for name, port in ports.items()), "--num-cpus=4", "--object-store-memory=100000000"]
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:  # pytest's path is too long
        command = [
            shutil.which("ray", path=path) or "ray",
            "start",
            "--head",
            "--block",
            f"--temp-dir={folder}",
            *options,
        ]
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as head:
            found = f"http://127.0.0.1:{ports['--dashboard-port']}"
            wait_until(lambda: head.poll() is not None or answers(found))
            yield found
            head.terminate()  # Ray ends all of its processes then


def answers(address: str) -> bool:
    with contextlib.suppress(EnvironmentFailure):
        return RayCluster(address).capacity() == Capacity(0.0, 4.0)
    return False


def wait_until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.5)


def code(storage: RunFolder) -> str:
    """The sha256 of the code of both users, which the storage has."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo("train.py")
        member.size = len(TRAIN)
        archive.addfile(member, io.BytesIO(TRAIN.encode()))
    known = sha256(file.getvalue()).hexdigest()
    file.seek(0)
    CodeStore(storage).put(known, file)
    return known


@contextlib.contextmanager
def opened(storage: RunFolder, address: str) -> Iterator[SearchQueue]:
    with SearchQueue.open(storage, RayCluster(address), Team()) as queue:
        yield queue


def step_until(queue: SearchQueue, holds: Callable[[], bool]) -> None:
    def looked() -> bool:
        with contextlib.suppress(EnvironmentFailure):  # it has only just come up: the next pass may do
            queue.step()
        assert "failed" not in {one.state for one in queue.entries()}, queue.entries()
        return holds()

    wait_until(looked)


def test_two_users_share_a_real_cluster(tmp_path: Path, address: str) -> None:
    storage = RunFolder.at(tmp_path / "runs")
    asked = {"experiment": EXPERIMENT, "code": code(storage), "per_trial": {"CPU": 1.0}, "trials": 8}
    searches = {name: Submission(user, name, name, **asked) for user, name in (("ada", "a"), ("bob", "b"))}  # type: ignore[arg-type]

    def running() -> dict[str, int]:
        seen = {name: standing(storage / name, one, Capacity(0.0, 4.0)) for name, one in searches.items()}
        return {name: one.running for name, one in seen.items()}

    with opened(storage, address) as queue:
        queue.submit(searches["a"])
        step_until(queue, lambda: running()["a"] == 4)
        assert queue.status().unit == "CPU"
        queue.submit(searches["b"])
        step_until(queue, lambda: running() == {"a": 2, "b": 2})

    with opened(storage, address) as queue:  # as after a kill
        queue.step()
        assert {one.name: one.state for one in queue.entries()} == {"a": "running", "b": "running"}
        assert set(RayCluster(address).jobs()) == {"a", "b"}

        queue.stop("b")
        step_until(queue, lambda: queue.entry("b").state == "stopped" and running()["a"] == 4)
        queue.stop("a")
        step_until(queue, lambda: queue.entry("a").state == "stopped")

    assert all(not trial.failures for trial in load_latest(storage / "a").trials)
    limits = [event for event in read_journal(storage / "a").events if event["what"] == "commanded"]
    assert {event["by"] for event in limits} == {"the queue"}
    assert [amount for amount, _ in itertools.groupby(event["arguments"]["trials"] for event in limits)] == [4, 2, 4]
