"""Searches that a user submits from a laptop, in a project of the user's own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import Host, until
from tests.cluster.launcher import Cluster
from tests.cluster.store import STORAGE, Store
from tuner import load_run
from tuner.runs.loading import load_latest
from tuner.storage.folder import RunFolder

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def laptop(cluster: Cluster) -> Host:
    """With the user's project in ``~/project``, and data there that must not travel."""
    host = cluster.laptop
    shutil.copytree(Path(__file__).with_name("project"), host.home / "project")
    (host.home / "project/data.bin").write_bytes(bytes(60 * 2**20))
    (host.home / "project/.gitignore").write_text("*.bin\n")
    return host


def tuner(laptop: Host, words: str, check: bool = True) -> str:
    return laptop.run(f"cd ~/project && python -m tuner {words} --cluster ~/cluster.yaml", timeout=500, check=check)


def submit(cluster: Cluster, laptop: Host, name: str, *overrides: str, file: str = "search.yaml") -> Path:
    sets = " ".join(f"--set {text}" for text in overrides)
    said = tuner(laptop, f"submit {file} --name {name} {sets}")
    assert said.splitlines()[-1] == name
    return cluster.hosts.shared / name


def kill_driver(cluster: Cluster) -> None:
    def only() -> list[int]:  # for a moment each program that it starts bears its command line
        found = [pid for pid, line in cluster.head.processes("tuner").items() if " run search.yaml" in line]
        return found if len(found) == 1 else []

    os.kill(until(only)[0], signal.SIGKILL)


def events(run: Path, what: str) -> int:
    file = run / "journal.jsonl"
    return file.read_bytes().count(f'"what":"{what}"'.encode()) if file.exists() else 0


def reports(run: Path) -> int:
    return events(run, "reported")


def number(cluster: Cluster, name: str) -> int:
    """The last part of a host's address, which trials report."""
    return int(cluster.hosts[name].address.rpartition(".")[2])


def last(run: Path) -> list[dict[str, Any]]:
    return [trial.reports[-1].metrics for trial in load_run(run).trials]


def test_a_search_is_submitted_followed_and_fetched(cluster: Cluster, laptop: Host) -> None:
    run = submit(cluster, laptop, "first", "resources.gpu=0.5", "resources.cpu=0.5", "budget.trials=8")
    assert "best: trial" in tuner(laptop, "logs first -f")
    workers = {number(cluster, name) for name in ("worker1", "worker2")}
    placed = last(run)
    assert {metrics["host"] for metrics in placed} == workers
    assert {metrics["gpu"] for metrics in placed} == {0, 1}
    assert {trial.host for trial in load_run(run).trials} == {"worker1", "worker2"}
    assert {metrics["threads"] for metrics in placed} == {1}
    assert load_run(run).provenance["slots"] == 8  # halves of four GPUs
    assert "succeeded" in tuner(laptop, "jobs")
    tuner(laptop, "fetch first")
    here, there = (load_run(folder).best for folder in (laptop.home / "project/runs/first", run))
    assert here is not None
    assert there is not None
    assert here.config == there.config
    assert (laptop.home / "project/runs/first/best/checkpoint/state.json").exists()


def test_a_node_is_measured_before_trials_share_its_gpus(cluster: Cluster, laptop: Host) -> None:
    run = submit(cluster, laptop, "shared", "resources.gpu=share", "resources.cpu=0.25", "params.seconds=0.2")
    assert "best: trial" in tuner(laptop, "logs shared -f")
    results = load_run(run)
    assert results.spec["resources"]["gpu"] < 1
    (notice,) = [notice for notice in results.notices if notice.startswith("resources.gpu share: ")]
    assert "1 at once" in notice
    assert "2 at once" in notice
    assert [trial.status for trial in results.trials] == ["completed"] * 4


def test_a_driver_is_killed_and_a_host_which_joins_again(cluster: Cluster, laptop: Host) -> None:
    """What joins is used within 30 s, counted from where Ray lists it as alive."""
    sets = "params.epochs=20", "params.seconds=1", "budget.trials=16", "failures.retries=0"
    run = submit(cluster, laptop, "killed", *sets)
    until(lambda: reports(run) >= 8)
    kill_driver(cluster)
    before = reports(run)
    until(lambda: reports(run) >= before + 12)
    host = cluster.hosts["worker2"]
    host.kill()
    cluster.wait_for(2)
    host.boot()
    cluster.wait_for(3)
    alive = time.time()
    said = tuner(laptop, "logs killed -f")
    assert "the search was killed (signal 9); it continues from its journal" in said
    trials = load_run(run).trials
    assert [trial.status for trial in trials] == ["completed"] * 16, said
    assert [[report.step for report in trial.reports] for trial in trials] == [list(range(1, 21))] * 16
    assert any(trial.reports[-1].metrics["begun"] > 0 for trial in trials)
    assert {failure.kind for trial in trials for failure in trial.failures} == {"node lost"}
    there = [r for trial in trials for r in trial.reports if r.metrics["host"] == number(cluster, "worker2")]
    assert min(report.timestamp for report in there if report.timestamp > alive) < alive + 30


def test_a_run_in_an_object_store_goes_on_and_is_fetched(cluster: Cluster, laptop: Host, store: Store) -> None:
    """It is killed on the way: nobody takes a dead process' lock away there, so it is waited for."""
    tuner(laptop, f"submit search.yaml --name s3 --storage '{STORAGE}' --set params.epochs=24 --set budget.trials=6")
    until(lambda: "running" in laptop.run(f"python -m tuner show s3 --storage '{STORAGE}'", check=False), every=2)
    kill_driver(cluster)
    said = tuner(laptop, "logs s3 -f")
    assert "it continues from its journal" in said
    assert "best: trial" in said
    assert not (cluster.hosts.shared / "s3").exists()
    tuner(laptop, "fetch s3")
    fetched = laptop.home / "project/runs/s3"
    results = load_run(fetched)
    assert [[r.step for r in trial.reports] for trial in results.trials] == [list(range(1, 25))] * 6, said
    assert len({metrics["host"] for metrics in last(fetched)}) == 2
    assert json.loads((fetched / "best/checkpoint/state.json").read_text())["epoch"] == 24
    kept = [trial.best.checkpoint for trial in results.trials if trial.best and trial.best.checkpoint]
    assert len(kept) == 5  # checkpoints.keep_trials
    assert all((fetched / checkpoint / "state.json").exists() for checkpoint in kept)


def test_storage_that_is_not_shared_is_refused_before_the_first_trial(cluster: Cluster, laptop: Host) -> None:
    tuner(laptop, "submit search.yaml --name unshared --storage /root/runs")
    said = tuner(laptop, "logs unshared -f", check=False)
    for name in ("worker1", "worker2"):
        assert f"({cluster.hosts[name].address}): it does not see the driver's file there" in said
    assert "with --storage" in said


def test_a_job_is_stopped_and_goes_on(cluster: Cluster, laptop: Host) -> None:
    run, code = submit(cluster, laptop, "stopped", "params.epochs=1000"), laptop.home / "project/train.py"
    until(lambda: reports(run) >= 8)
    assert "stop it first" in tuner(laptop, "resume stopped", check=False)
    tuner(laptop, "stop stopped")
    until(lambda: not [line for line in cluster.head.processes("tuner").values() if "stopped" in line], 60)
    assert json.loads((run / "provenance.json").read_text())["interrupted"] is not False
    code.write_text(code.read_text().replace('"gpu":', '"changed": 1, "gpu":', 1))
    before = reports(run)
    assert tuner(laptop, "resume stopped").splitlines()[-1] == "stopped"
    until(lambda: reports(run) >= before + 12)
    tuner(laptop, "stop stopped")
    assert not (run.parent / ".jobs/stopped").exists()
    trials = load_latest(RunFolder.at(run)).trials
    assert len(trials) == 4
    for trial in trials:
        assert [report.step for report in trial.reports] == list(range(1, trial.steps + 1))
        assert trial.reports[-1].metrics["begun"] > 0
        assert trial.reports[-1].metrics["changed"] == 1
        assert "changed" not in trial.reports[0].metrics


def test_one_trial_spans_two_hosts_and_learns_what_one_process_does(cluster: Cluster, laptop: Host) -> None:
    runs = [
        submit(cluster, laptop, "two", file="ddp.yaml"),
        submit(cluster, laptop, "one", "resources.workers=1", "resources.strategy=pack", file="ddp.yaml"),
    ]
    for run in runs:
        assert "best: trial" in tuner(laptop, f"logs {run.name} -f")
    (two,), (one,) = (load_run(run).trials for run in runs)
    assert two.steps == one.steps == 3
    for here, there in zip(two.reports, one.reports, strict=True):
        for name in ("val_loss", "train_loss"):
            assert here.metrics[name] == pytest.approx(there.metrics[name], abs=1e-5)
    logs = {path.name for path in (runs[0] / "ray" / two.id).glob("output*")}
    assert logs == {"output.log", "output.1.log"}


def test_a_search_goes_on_when_its_head_died(cluster: Cluster, laptop: Host) -> None:
    """With a new `ray up`, which knows of no job; what has ended or was stopped before has no record that it finds."""
    cluster.wait_for(3)
    run = submit(cluster, laptop, "headless", "params.epochs=10", "budget.trials=8", "failures.retries=0")
    until(lambda: events(run, "ended") >= 3)
    records = run.parent / ".jobs"
    assert [path.name for path in records.iterdir()] == ["headless"]
    cluster.head.kill()
    before = [trial for trial in load_latest(RunFolder.at(run)).trials if trial.status == "completed"]
    cluster.head.boot()
    assert "job headless continues: the cluster lost its head while it ran" in cluster.up()
    assert cluster.head.run("python -m tuner.jobs.recover --cluster ~/ray_bootstrap_config.yaml") == ""  # it runs
    said = tuner(laptop, "logs headless -f")
    results = load_run(run)
    assert [trial.status for trial in results.trials] == ["completed"] * 8, said
    assert [[r.step for r in trial.reports] for trial in results.trials] == [list(range(1, 11))] * 8
    assert [trial.failures for trial in results.trials] == [[]] * 8
    assert {trial.reports[-1].metrics["begun"] for trial in before} == {0}
    after = {trial.id: trial for trial in results.trials}
    assert [after[trial.id].seconds for trial in before] == [trial.seconds for trial in before]
    assert any(trial.reports[-1].metrics["begun"] > 0 for trial in results.trials)
    assert list(records.iterdir()) == []
    listed = json.loads(tuner(laptop, "jobs --json"))
    assert [job["job"] for job in listed] == ["headless"]
    cluster.wait_for(3)


def test_trials_of_a_host_that_is_cut_off_go_on_elsewhere(cluster: Cluster, laptop: Host) -> None:
    cluster.wait_for(3)
    run = submit(cluster, laptop, "cut", "params.epochs=20", "failures.retries=0")
    until(lambda: reports(run) >= 16)
    gone = cluster.hosts["worker2"]
    try:
        gone.cut()
        said = tuner(laptop, "logs cut -f")
    finally:
        gone.mend()
    results = load_run(run)
    assert [trial.status for trial in results.trials] == ["completed"] * 4, said
    assert [[r.step for r in trial.reports] for trial in results.trials] == [list(range(1, 21))] * 4
    assert {trial.host for trial in results.trials} == {"worker1"}
    assert {failure.kind for trial in results.trials for failure in trial.failures} == {"node lost"}
