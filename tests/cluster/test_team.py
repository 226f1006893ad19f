"""Users who share the three hosts: the launcher file has started the service, and each comes through a tunnel of ssh."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import Host, until
from tests.cluster.launcher import Cluster
from tuner.runs.loading import load_latest
from tuner.storage.folder import RunFolder

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SERVICE = "http://127.0.0.1:8380"
SLOTS = 4
"""Whole GPUs of the two workers."""


class User:
    """A person at the laptop, with a token and a copy of the project."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        storage = cluster.hosts.shared
        said = cluster.head.run(f"python -m tuner token add {name} --storage {storage}", timeout=120)
        self._token = cluster.laptop.home / f"{name}.token"
        self._token.write_text(said.splitlines()[-1])
        shutil.copytree(Path(__file__).with_name("project"), cluster.laptop.home / name)

    def tuner(self, words: str, check: bool = True) -> str:
        options = f"--service {SERVICE} --token-file ~/{self.name}.token"
        return self.cluster.laptop.run(f"cd ~/{self.name} && python -m tuner {words} {options}", 240, check)

    def submit(self, name: str, *overrides: str) -> Path:
        sets = " ".join(f"--set {text}" for text in ("resources.gpu=1", "resources.cpu=1", *overrides))
        assert self.tuner(f"submit search.yaml --name {name} {sets}").splitlines()[-1] == name
        return self.cluster.hosts.shared / name


@pytest.fixture(scope="module")
def tunnel(cluster: Cluster) -> Iterator[Host]:
    """The laptop, from which the service is reached."""
    laptop, head = cluster.laptop, cluster.head.address
    until(lambda: cluster.laptop.run("ssh -o BatchMode=yes head true", check=False) == "")
    command = f"exec ssh -N -o BatchMode=yes -o ExitOnForwardFailure=yes -L 8380:127.0.0.1:8380 {head}"
    process = laptop.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: "ssh" in laptop.run("ss -ltnpH 'sport = 8380'"))
        yield laptop
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def states(cluster: Cluster) -> dict[str, str]:
    """By name of each search what the storage holds of it: what the service has told of to nobody yet is there too."""
    found = {}
    for file in (cluster.hosts.shared / ".service/searches").glob("*.json"):
        record = json.loads(file.read_text())
        found[file.stem] = record["state"]
    return found


def trials(run: Path) -> dict[str, str]:
    """By id of each trial of a search that runs its state now."""
    with contextlib.suppress(OSError, ValueError):  # it is just being written, or there is none
        return {name: trial["state"] for name, trial in json.loads((run / "live.json").read_text())["trials"].items()}
    return {}


def running(run: Path) -> int:
    return sum(state == "running" for state in trials(run).values())


def limit(run: Path) -> Any:
    with contextlib.suppress(OSError, ValueError):
        return json.loads((run / "live.json").read_text()).get("limit")
    return None


def services(cluster: Cluster) -> list[int]:
    """Process ids of the service, without the loop that keeps it."""
    return [pid for pid, line in cluster.head.processes("-m tuner serve").items() if "bash" not in line]


def steps(run: Path) -> list[list[int]]:
    return [[report.step for report in trial.reports] for trial in load_latest(RunFolder.at(run)).trials]


def test_users_share_the_hosts_and_nothing_is_lost_when_the_service_is_killed(cluster: Cluster, tunnel: Host) -> None:
    cluster.wait_for(3)
    ada, bob, eve = (User(cluster, name) for name in ("ada", "bob", "eve"))
    first = ada.submit("ada-1", "params.epochs=30", "budget.trials=6")
    until(lambda: running(first) == SLOTS)

    second = bob.submit("bob-1", "params.epochs=8", "budget.trials=4")
    until(lambda: running(first) == running(second) == SLOTS // 2)
    assert "aside" in trials(first).values()

    (killed,) = until(lambda: services(cluster))
    os.kill(killed, signal.SIGKILL)
    third = eve.tuner  # submits while nobody serves: it asks again
    until(lambda: services(cluster) not in ([], [killed]))
    print(ada.tuner("jobs"))
    assert third
