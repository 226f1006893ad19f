"""The metrics for Prometheus: read back with its own parser, they are what the journals tell."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parsed_text

from tests.benchmarks.made_up_run import SPEC, made_up_run
from tests.live.journals import Journal
from tests.service.entries import entry
from tuner.live import figures
from tuner.live.families import MOST_NAMED
from tuner.live.figures import KEPT_S
from tuner.live.metrics import router
from tuner.live.queue_source import Queue
from tuner.runs.history import journalled, state_of
from tuner.runs.journal import JournalReader, rewrite
from tuner.runs.loading import runs
from tuner.service.accounts import Use
from tuner.service.queue import QueueStatus
from tuner.service.records import Record
from tuner.storage.folder import RunFolder
from tuner.storage.lock import LOCK, locked

Samples = dict[tuple[str, ...], float]


def client(storage: Path, queue: Queue | None = None) -> TestClient:
    """Of a server for the runs below ``storage``."""
    app = FastAPI()
    app.include_router(router(lambda: runs(RunFolder.at(storage)), queue))
    return TestClient(app)


def scrape(server: TestClient) -> dict[str, Samples]:
    """The samples of each metric by the values of their labels, in the order of the labels' names."""
    answer = server.get("/metrics")
    assert answer.status_code == 200
    found: dict[str, Samples] = {}
    for family in parsed_text(answer.text):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {}), "a series stands there once"
            found[sample.name][labels] = sample.value
    return found


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def test_the_values_are_those_of_the_run(tmp_path: Path, journal: Journal) -> None:
    journal.live(slots=4, request={"GPU": 0.25}, workers=2, trials={"b": {"state": "running", "since": 0.0}})
    for trial in ("a", "b", "c"):
        journal.start(trial)
    journal.report("a", 1, 0.5)
    journal.report("a", 2, 0.7)
    journal.end("a", "stopped", rung=1)
    journal.report("b", 1, 0.6, held=40.0, elapsed=20.0)
    failed = {"kind": "GPU memory", "message": "", "step": 0, "retried": False}
    journal.append("failed attempt", trial="c", **failed)
    journal.end("c", "failed")
    server = client(tmp_path)
    with locked(journal.folder, LOCK):
        found = scrape(server)
    assert found["tuner_storage_up"] == {(): 1}
    assert found["tuner_unreadable_runs"] == {(): 0}
    assert found["tuner_run_state"]["run", "running"] == 1
    assert sum(found["tuner_run_state"].values()) == 1
    assert found["tuner_run_best"] == {("val_accuracy", "max", "run"): 0.7}
    trials = {status: count for (_, status), count in found["tuner_run_trials"].items() if count}
    assert trials == {"stopped": 1, "running": 1, "failed": 1}
    assert found["tuner_run_reports"] == {("run",): 3}
    assert found["tuner_run_slots"] == {("run",): 4}
    assert found["tuner_run_busy_slots"] == {("run",): 1}
    assert found["tuner_run_epochs_total"] == {("run", "epoch"): 3}
    assert found["tuner_run_saved_epochs"] == {("run", "epoch"): SPEC["scheduler"]["max_t"] - 2}
    assert found["tuner_run_saved_seconds"] == {("run",): 28 * 2.0}
    assert found["tuner_run_trial_seconds_total"] == {("run",): 40}
    assert found["tuner_run_gpu_seconds_total"] == {("run",): 20}
    journal.folder.write("live.json", b"{")
    assert scrape(server)["tuner_run_gpu_seconds_total"] == {("run",): 20}, "a counter never falls"
    assert found["tuner_run_wall_clock_seconds_total"] == {("run",): 20}
    assert found["tuner_run_failures_total"] == {("GPU memory", "run"): 1}
    journal_time = (tmp_path / "run" / "journal.jsonl").stat().st_mtime
    assert found["tuner_run_last_event_timestamp_seconds"]["run",] == pytest.approx(journal_time)


def test_a_scrape_reads_on_where_the_one_before_ended(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    pieces = JournalReader._file_pieces

    def counted(self: JournalReader) -> Any:
        for piece in pieces(self):
            read.append(len(piece))
            yield piece

    monkeypatch.setattr(JournalReader, "_file_pieces", counted)
    server = client(tmp_path)
    journal.start("a")
    journal.report("a", 1, 0.5)
    assert scrape(server)["tuner_run_reports"] == {("run",): 1}
    before = (tmp_path / "run" / "journal.jsonl").stat().st_size
    journal.report("a", 2, 0.4)
    read.clear()
    found = scrape(server)
    assert found["tuner_run_reports"] == {("run",): 2}
    assert found["tuner_run_best"] == {("val_accuracy", "max", "run"): 0.5}
    followed = (tmp_path / "run" / "journal.jsonl").stat().st_size - before
    assert followed in read
    read.clear()
    scrape(server)
    assert followed not in read


def test_a_run_that_ended_is_there_for_an_hour(tmp_path: Path, journal: Journal) -> None:
    journal.append("left", interrupted=False)
    server = client(tmp_path)
    assert scrape(server)["tuner_run_state"]["run", "finished"] == 1
    long_ago = time.time() - KEPT_S - 60
    os.utime(tmp_path / "run" / "journal.jsonl", (long_ago, long_ago))
    assert "tuner_run_state" not in scrape(server)


def test_a_run_whose_trials_report_once_a_day_is_there_while_its_process_lives(
    tmp_path: Path, journal: Journal
) -> None:
    long_ago = time.time() - 20 * KEPT_S
    os.utime(tmp_path / "run" / "journal.jsonl", (long_ago, long_ago))
    journal.live(slots=1)
    with locked(journal.folder, LOCK):
        found = scrape(client(tmp_path))
    assert found["tuner_run_state"]["run", "running"] == 1
    assert found["tuner_run_last_event_timestamp_seconds"]["run",] == pytest.approx(long_ago)


def test_a_killed_run_has_no_busy_slots(tmp_path: Path, journal: Journal) -> None:
    journal.live(slots=4, trials={"a": {"state": "running", "since": 0.0}})
    found = scrape(client(tmp_path))
    assert found["tuner_run_state"]["run", "dead"] == 1
    assert found["tuner_run_busy_slots"] == found["tuner_run_slots"] == {("run",): 0}


def test_of_several_objectives_each_has_its_best_on_the_front(tmp_path: Path) -> None:
    objective = [{"metric": "val_accuracy", "mode": "max"}, {"metric": "latency_ms", "mode": "min"}]
    journal = Journal(tmp_path, objective=objective)
    for trial, accuracy, latency in (("a", 0.9, 9.0), ("b", 0.5, 2.0), ("c", 0.4, 3.0)):
        journal.start(trial)
        journal.report(trial, 1, accuracy, metrics={"latency_ms": latency})
    found = scrape(client(tmp_path))
    assert found["tuner_run_best"] == {("val_accuracy", "max", "run"): 0.9, ("latency_ms", "min", "run"): 2.0}


def test_hostile_names_stay_labels(tmp_path: Path) -> None:
    name = 'a"} 1\ntuner_run_best{run="b\\ \x1b]0;x\x07é'
    metric = 'm"\n\u202e'
    journal = Journal(tmp_path, name, objective={"metric": metric, "mode": "max"})
    journal.start("a")
    journal.report("a", 1, 0.5, metrics={metric: 1.0})
    journal.append("failed attempt", trial="a", kind="made\ud800\nup", message="", step=1, retried=True)
    found = scrape(client(tmp_path))
    shown = 'a"} 1\ntuner_run_best{run="b\\ \\x1b]0;x\\x07é'
    assert found["tuner_run_best"] == {('m"\n\\u202e', "max", shown): 1}
    assert found["tuner_run_failures_total"] == {("other", shown): 1}


def test_a_damaged_run_is_counted_and_hides_no_other(tmp_path: Path, journal: Journal) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "experiment.yaml").write_text("{")
    (tmp_path / "bad" / "journal.jsonl").write_text("no event\n")
    (tmp_path / "pipe").mkdir()
    (tmp_path / "pipe" / "experiment.yaml").write_text("{")
    os.mkfifo(tmp_path / "pipe" / "journal.jsonl")
    found = scrape(client(tmp_path))
    assert found["tuner_unreadable_runs"] == {(): 2}
    assert {run for run, _ in found["tuner_run_state"]} == {"run"}


def test_a_storage_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert scrape(client(tmp_path / "file"))["tuner_storage_up"] == {(): 0}


def test_the_latest_runs_are_told_of_more_than_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MOST_RUNS", 3)
    for number in range(5):
        Journal(tmp_path, f"run{number}").writer.close()
        at = time.time() - number
        os.utime(tmp_path / f"run{number}" / "journal.jsonl", (at, at))
    names = {run for run, _ in scrape(client(tmp_path))["tuner_run_state"]}
    assert names == {f"run{number}" for number in range(3)}


def test_a_thousand_trials_are_as_few_series_as_ten(tmp_path: Path) -> None:
    sizes = []
    for trials in (10, 1000):
        made_up_run(tmp_path / str(trials) / "run", trials, reports=3)
        found = scrape(client(tmp_path / str(trials)))
        assert found["tuner_run_reports"] == {("run",): 3 * trials}
        sizes.append(sum(map(len, found.values())))
    assert sizes[0] == sizes[1] < 50


def test_a_journal_that_a_recovery_wrote_counts_the_same(tmp_path: Path, journal: Journal) -> None:
    journal.start("a")
    journal.report("a", 1, 0.5)
    journal.report("a", 2, 0.7)
    journal.end("a", "stopped", rung=1)
    server = client(tmp_path)
    before = scrape(server)
    history, reader = journalled(journal.folder, {})
    told = [{"what": "trial", "trial": trial.id, "state": state_of(trial)} for trial in history.results.trials]
    events = [{"what": "began", "spec": SPEC, "provenance": {}}, *told, {"what": "recovered", "elapsed": 0.0}]
    rewrite(journal.folder, reader.number + 1, events)
    after = scrape(server)
    for name in ("tuner_run_best", "tuner_run_trials", "tuner_run_epochs_total", "tuner_run_saved_epochs"):
        assert after[name] == before[name]


def test_a_client_that_asks_for_openmetrics_gets_it(tmp_path: Path, journal: Journal) -> None:
    answer = client(tmp_path).get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in parsed_openmetrics(answer.text)}
    assert "tuner_run_epochs" in names


# A queue


@dataclass(frozen=True)
class FakeQueue:
    searches: list[Record]
    now: QueueStatus

    def entries(self) -> list[Record]:
        return self.searches

    def status(self) -> QueueStatus:
        return self.now


def test_the_queue_tells_places_waits_gpus_and_debts(tmp_path: Path) -> None:
    entries = [entry("x", "ada", "running"), entry("y", "bob", "queued", 1, time.time() - 60)]
    entries.append(entry("z", "ada", "succeeded"))
    users = {"ada": Use(5.0, -30.0, 2.0), "bob": Use(0.0, 30.0, 0.0)}
    found = scrape(
        client(tmp_path, FakeQueue(entries, QueueStatus(gpus=8.0, reserved=2.0, in_use=5.0, problem="", users=users)))
    )
    assert found["tuner_searches"] == {("running", "ada"): 1, ("queued", "bob"): 1, ("succeeded", "ada"): 1}
    assert found["tuner_search_queue_position"] == {("y", "bob"): 1}
    assert found["tuner_search_waiting_seconds"]["y", "bob"] >= 60
    assert found["tuner_cluster_gpus"] == {("GPU", "used"): 5, ("GPU", "reserved"): 2, ("GPU", "free"): 1}
    assert found["tuner_user_gpus"] == {("GPU", "ada"): 5, ("GPU", "bob"): 0}
    assert found["tuner_user_owed_gpu_seconds"] == {("GPU", "ada"): -30, ("GPU", "bob"): 30}
    assert found["tuner_user_week_gpu_seconds"] == {("GPU", "ada"): 7200, ("GPU", "bob"): 0}
    assert found["tuner_queue_blocked"] == {(): 0}


def test_a_long_queue_has_series_for_its_first_searches_alone(tmp_path: Path) -> None:
    entries = [entry(f"s{place}", "ada", "queued", place) for place in range(1000, 0, -1)]
    found = scrape(client(tmp_path, FakeQueue(entries, QueueStatus(problem="the cluster is gone"))))
    assert found["tuner_searches"] == {("queued", "ada"): 1000}
    assert sorted(found["tuner_search_queue_position"].values()) == list(range(1, MOST_NAMED + 1))
    assert found["tuner_queue_blocked"] == {(): 1}
