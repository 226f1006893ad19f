"""The process beside a search: it sends what the journal tells, waits for what is away, and loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.held import children, held, parent, recorded
from tests.tracking.made_up import made_up_run
from tuner.errors import EnvironmentFailure
from tuner.experiment.tracking import Tracking
from tuner.runs.history import EventApplier
from tuner.runs.journal import JournalWriter
from tuner.runs.loading import load_latest
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.tracking.follower import JournalFollower, Outbox, follow
from tuner.tracking.process import TrackingProcess


@pytest.fixture
def journal(tmp_path: Path) -> JournalWriter:
    results = made_up_run(tmp_path)
    results.folder.filesystem.create_dir(results.folder.path)
    writer = JournalWriter(results.folder)
    writer.append("began", spec=results.spec, provenance=results.provenance)
    return writer


def reported(journal: JournalWriter, trial: str, step: int, accuracy: float) -> None:
    values = {"seconds": 1.0 * step, "timestamp": 1.8e9 + step, "checkpoint": None}
    journal.append("reported", trial=trial, step=step, metrics={"epoch": step, "acc": accuracy}, **values)


def started(journal: JournalWriter, trial: str) -> None:
    journal.append("suggested", trial=trial, config={"lr": 0.1})
    journal.append("started", trial=trial)


def test_it_sends_what_happens_as_it_happens(journal: JournalWriter, tmp_path: Path, database: str) -> None:
    said: list[str] = []
    folder = made_up_run(tmp_path).folder
    follower = JournalFollower(folder, said.append)
    started(journal, "a")
    follower.step()
    assert [run.info.status for run in children(database).values()] == ["RUNNING"]
    reported(journal, "a", 1, 0.5)
    started(journal, "b")
    follower.step()
    reported(journal, "a", 2, 0.6)
    journal.append("ended", trial="a", status="completed", reason="", rung=None)
    follower.step()
    assert {name: run.info.status for name, run in children(database).items()} == {"a": "FINISHED", "b": "RUNNING"}
    assert held(database) == recorded(load_latest(folder))
    assert said == []


def test_a_killed_search_leaves_no_run_running(journal: JournalWriter, tmp_path: Path, database: str) -> None:
    started(journal, "a")
    reported(journal, "a", 1, 0.5)
    over = threading.Event()
    over.set()
    assert follow(made_up_run(tmp_path).folder, over, print) == ""
    assert (children(database)["a"].info.status, parent(database).info.status) == ("KILLED", "KILLED")
    journal.append("started", trial="a")
    reported(journal, "a", 2, 0.6)
    follower = JournalFollower(made_up_run(tmp_path).folder, print)
    follower.step()
    assert (children(database)["a"].info.status, parent(database).info.status) == ("RUNNING", "RUNNING")
    assert held(database) == recorded(load_latest(made_up_run(tmp_path).folder))


def test_what_a_damaged_journal_lost_is_passed_over(journal: JournalWriter, tmp_path: Path, database: str) -> None:
    follower = JournalFollower(made_up_run(tmp_path).folder, print)
    journal.append("started", trial="lost")
    reported(journal, "lost", 1, 0.5)
    started(journal, "a")
    follower.step()
    assert children(database).keys() == {"a"}


class Away:
    """A mirror that can be away."""

    name = "the mirror"

    def __init__(self) -> None:
        self.is_away = False
        self.got: dict[str, int] = {}
        self.opened = 0

    def open(self, results: ResultSet) -> None:
        self.opened += 1
        self._reach()

    def send(self, results: ResultSet, trials: Iterable[Trial]) -> None:
        self._reach()
        self.got |= {trial.id: len(trial.reports) for trial in trials}

    def close(self, results: ResultSet) -> None:
        self.send(results, results.trials)

    def _reach(self) -> None:
        if self.is_away:
            raise EnvironmentFailure("the mirror is away")


def test_what_a_mirror_missed_is_sent_when_it_is_back(
    tmp_path: Path, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("tuner.tracking.follower.time.monotonic", lambda: clock[0])
    said: list[str] = []
    mirror = Away()
    results = made_up_run(tmp_path)
    history = EventApplier(results)
    outbox = Outbox(mirror, said.append)

    def happens(**event: Any) -> None:
        clock[0] += 1
        history.apply({"trial": "a", **event})
        outbox.waiting.add("a")
        outbox.send(results)

    happens(what="suggested", config={})
    assert mirror.got == {"a": 0}
    mirror.is_away = True
    for step in range(1, 8):
        happens(what="reported", step=step, seconds=1, timestamp=1, metrics={"acc": 1}, checkpoint=None)
    assert mirror.got == {"a": 0}
    assert said == ["the mirror is away; the search continues, and what is missing is sent when it can be"]
    mirror.is_away = False
    before = mirror.opened
    clock[0] += 10
    happens(what="reported", step=8, seconds=1, timestamp=1, metrics={"acc": 1}, checkpoint=None)
    assert mirror.got == {"a": 8}
    assert mirror.opened == before + 1  # what it had got of a request that failed, it says itself
    assert said[1:] == ["the mirror is back; what was missing is sent"]


def test_a_mirror_that_stays_away_is_told_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.tracking.follower.time.sleep", lambda seconds: None)
    mirror = Away()
    mirror.is_away = True
    assert Outbox(mirror, lambda text: None).close(made_up_run(tmp_path)) == "the mirror is away"
    mirror.is_away = False
    assert Outbox(mirror, lambda text: None).close(made_up_run(tmp_path)) == ""


def test_a_follower_that_dies_does_not_hurt_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.tracking.process.sys.executable", "/bin/false")
    said: list[str] = []
    results = made_up_run(tmp_path)
    tracking = TrackingProcess(said.append)
    tracking.start(Tracking())
    tracking._process.wait()
    tracking.started(results)
    while not tracking._has_ended:  # the search is told of its end while it continues
        tracking.tick()
    tracking.finished(results)
    tracking.close()
    (notice,) = said
    assert notice.startswith("NOTICE: not all was sent: the process that sends it has died")


def test_a_storage_that_fails_for_a_while_does_not_end_what_follows(
    journal: JournalWriter, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(journal, "a")
    over, steps, step = threading.Event(), [0], JournalFollower.step

    def stepped(follower: JournalFollower) -> None:
        steps[0] += 1
        if steps[0] == 1:
            raise OSError("503 SlowDown")
        step(follower)
        over.set()

    monkeypatch.setattr(JournalFollower, "step", stepped)
    monkeypatch.setattr("tuner.tracking.follower._EVERY_S", 0.01)
    assert follow(made_up_run(tmp_path).folder, over, print) == ""
    assert children(database).keys() == {"a"}
