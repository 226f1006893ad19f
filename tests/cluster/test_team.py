"""Users who share the three hosts: `ray up` has started the service, and each comes through a tunnel of ssh."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import until
from tests.cluster.launcher import Cluster
from tuner.runs.loading import load_latest
from tuner.runs.trial import Trial
from tuner.storage.folder import RunFolder

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

PORT = 8380
GPUS = 4
"""Of the two workers; each trial takes a whole one."""

WAIT_S = 300
"""For what takes some seconds on a machine that has nothing else to do."""

GET = """
import pathlib, sys, urllib.request
headers = {"Authorization": "Bearer " + pathlib.Path(sys.argv[2]).read_text()}
print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=headers)).read().decode())
"""

JOBS = """
from tuner.jobs.cluster_address import jobs_api
with jobs_api("http://127.0.0.1:8265", None) as client:
    for job in client.list_jobs():
        print("JOB", job.submission_id)
"""


class User:
    """A person at the laptop, with a token, and a project."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        words = f"python -m tuner token add {name} --storage {cluster.hosts.shared}"
        token = cluster.head.run(words, timeout=120).splitlines()[-1]
        (cluster.laptop.home / f"{name}.token").write_text(token)
        shutil.copytree(Path(__file__).with_name("project"), cluster.laptop.home / name)

    def tuner(self, words: str, check: bool = True) -> str:
        options = f"--service http://127.0.0.1:{PORT} --token-file ~/{self.name}.token"
        return self.cluster.laptop.run(f"cd ~/{self.name} && python -m tuner {words} {options}", 240, check)

    def get(self, path: str) -> str:
        """An answer of the service."""
        return self.cluster.laptop.run(f"python -c '{GET}' http://127.0.0.1:{PORT}{path} ~/{self.name}.token")

    def submit(self, name: str, *overrides: str) -> Path:
        sets = " ".join(f"--set {text}" for text in overrides)
        assert self.tuner(f"submit search.yaml --name {name} {sets}").splitlines()[-1] == name
        return self.cluster.hosts.shared / name


@pytest.fixture(scope="module")
def tunnel(cluster: Cluster) -> Iterator[None]:
    """The laptop reaches the service, which listens on the loopback of the head."""
    to = f"-L {PORT}:127.0.0.1:{PORT} {cluster.head.address}"
    process = cluster.laptop.start(f"exec ssh -N -o BatchMode=yes -o ExitOnForwardFailure=yes {to}")
    try:
        until(lambda: "ssh" in cluster.laptop.run(f"ss -ltnpH 'sport = {PORT}'"))
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill_service(cluster: Cluster) -> None:
    """kill -9; returns when another one answers."""

    def services() -> list[int]:
        return [pid for pid, line in cluster.head.processes("-m tuner serve").items() if "bash" not in line]

    (killed,) = services()
    os.kill(killed, signal.SIGKILL)
    until(lambda: services() not in ([], [killed]))
    until(lambda: f":{PORT}" in cluster.head.run(f"ss -ltnH 'sport = {PORT}'"))


def live(run: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError):  # there is none yet
        found: dict[str, Any] = json.loads((run / "live.json").read_text())
        return found
    return {}


def count(run: Path, state: str) -> int:
    """The trials of a search that are in this state now."""
    return sum(trial["state"] == state for trial in live(run).get("trials", {}).values())


def trials(run: Path) -> list[Trial]:
    """Each of whose steps was reported once, and in order."""
    found = load_latest(RunFolder.at(run)).trials
    for trial in found:
        assert [report.step for report in trial.reports] == list(range(1, trial.steps + 1))
    return found


def continued(run: Path) -> int:
    """Trials that began again from a checkpoint."""
    return sum(bool(trial.reports and trial.reports[-1].metrics["begun"] > 0) for trial in trials(run))


def states(user: User) -> dict[str, str]:
    """Of all searches, as the service tells them."""
    return {search["name"]: search["state"] for search in json.loads(user.tuner("jobs --json"))}


def test_users_share_the_hosts_whatever_comes_and_goes(cluster: Cluster, tunnel: None) -> None:
    """A killed service, a reservation, a weight, a pause and a lost host: no search loses a step, none has two jobs."""
    cluster.wait_for(3)
    ada, bob, eve = (User(cluster, name) for name in ("ada", "bob", "eve"))
    endless = "params.epochs=1000000", f"budget.trials={GPUS}"
    first = ada.submit("ada-1", *endless)
    until(lambda: count(first, "running") == GPUS, WAIT_S)

    second = bob.submit("bob-1", *endless)
    kill_service(cluster)
    until(lambda: count(first, "running") == count(second, "running") == GPUS // 2, WAIT_S)
    assert count(first, "aside") == GPUS // 2
    assert continued(first) == 0

    third = eve.submit("eve-1", *endless)

    def running() -> list[int]:
        return [count(run, "running") for run in (first, second, third)]

    until(lambda: sorted(running()) == [1, 1, 2], WAIT_S)
    team = cluster.hosts.shared / ".service/team.yaml"
    team.write_text("reserved: 1\n")
    until(lambda: running() == [1, 1, 1], WAIT_S)
    team.write_text("members: {ada: {weight: 2}, bob: {}, eve: {}}\n")
    until(lambda: running() == [2, 1, 1], WAIT_S)
    assert 'tuner_user_gpus{unit="GPU",user="ada"}' in eve.get("/metrics")

    until(lambda: "pause: done" in eve.tuner("control eve-1 pause", check=False))  # again if it was slow to answer
    until(lambda: running()[2] == 0 and sum(running()) == GPUS, WAIT_S)
    until(lambda: "continue: done" in eve.tuner("control eve-1 continue", check=False))
    until(lambda: running() == [2, 1, 1], WAIT_S)

    host = cluster.hosts["worker2"]
    host.kill()
    try:
        cluster.wait_for(2, WAIT_S)
        until(lambda: sum(running()) == GPUS // 2, WAIT_S)
    finally:
        host.boot()
        cluster.wait_for(3, WAIT_S)
    until(lambda: running() == [2, 1, 1], WAIT_S)
    team.unlink()

    bob.tuner("stop bob-1")
    eve.tuner("stop eve-1")
    until(lambda: running()[0] == GPUS, WAIT_S)
    last = eve.submit("eve-2", "params.epochs=3", "budget.trials=2")
    assert "best: trial" in eve.tuner("logs eve-2 -f")
    assert [trial.steps for trial in trials(last)] == [3, 3]
    eve.tuner("fetch eve-2")
    assert len(load_latest(RunFolder.at(cluster.laptop.home / "eve/runs/eve-2")).trials) == 2

    assert "'ada-1' is ada's" in bob.tuner("stop ada-1", check=False)
    ada.tuner("stop ada-1")
    ended = {"ada-1": "stopped", "bob-1": "stopped", "eve-1": "stopped", "eve-2": "succeeded"}
    until(lambda: states(ada) == ended, WAIT_S, every=3)
    assert len(trials(first)) == GPUS
    assert continued(first) >= GPUS // 2
    assert all(trials(run) for run in (second, third))
    jobs = cluster.head.run(f"python -c '{JOBS}'").splitlines()
    ours = [job for job in jobs if job.startswith(("JOB ada", "JOB bob", "JOB eve"))]
    assert sorted(ours) == [f"JOB {name}" for name in ended]
