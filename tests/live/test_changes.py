"""What the live page gets: all that changes since an event add up to what the journal tells."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.made_up_run import made_up_run
from tests.live.journals import Journal
from tuner.errors import EnvironmentFailure
from tuner.live import hub
from tuner.live.changes import ROW, changes, cursor, encoded, head
from tuner.live.live_run import LiveRun
from tuner.live.now import now
from tuner.runs.history import journalled, state_of
from tuner.runs.journal import JournalReader, rewrite
from tuner.storage.lock import LOCK, locked


class Copy:
    """What a page holds: it takes in changes as page.js does."""

    def __init__(self) -> None:
        self.id = ""
        self.forget()

    def forget(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.trials: dict[int, list[Any]] = {}
        self.curves: dict[int, list[Any]] = {}
        self.best: list[Any] = []
        self.failures: list[Any] = []
        self.commands: list[Any] = []
        self.head: dict[str, Any] = {}

    def take(self, told: dict[str, Any]) -> None:
        if told["whole"]:
            self.forget()
        self.id = told["id"]
        self.head = told.get("head", self.head)
        self.trials |= {row[0]: row for row in told.get("trials", [])}
        self.rows |= {row[0]: dict(zip(ROW, row, strict=True)) for row in told.get("rows", [])}
        for number, start, xs, ys in told.get("curves", []):
            self.curves.setdefault(number, [])[start:] = zip(xs, ys, strict=True)
        for name in ("best", "failures", "commands"):
            getattr(self, name).extend(told.get(name, []))


def read(journal: Journal) -> LiveRun:
    """The run of ``journal`` as a server that has just started reads it."""
    run = LiveRun(journal.folder)
    run.read()
    return run


def whole(run: LiveRun) -> Copy:
    copy = Copy()
    take(copy, run)
    return copy


def take(copy: Copy, run: LiveRun) -> None:
    """Has ``copy`` take in what it lacks."""
    copy.take(json.loads(encoded(changes(run, copy.id) | {"head": head(run)})))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def test_changes_add_up_for_every_viewer_whenever_it_asks(journal: Journal) -> None:
    chosen, run = random.Random(1), LiveRun(journal.folder)
    copies = [Copy() for _ in range(4)]
    steps: dict[str, int] = {}
    for i in range(400):
        if i % 10 == 0:
            steps[trial := f"t{i}"] = 0
            journal.start(trial, **{f"p{i}": i})
        trial = chosen.choice([*steps])
        match chosen.randrange(12):
            case 0:
                journal.fail(trial, steps[trial], "oom", retried=True)
            case 1:
                journal.commanded("stop-trial", "ada@host", trial=trial)
            case 2 if steps[trial] > 3:
                steps[trial] -= 3
            case 3:
                journal.end(trial, "stopped", rung=1)
            case _:
                steps[trial] += 1
                journal.report(trial, steps[trial], chosen.random())
        run.read()
        for copy in chosen.choices(copies, k=1):
            take(copy, run)
    for copy in copies:
        take(copy, run)
        assert vars(copy) == vars(whole(run))
    told = journalled(journal.folder, {})[0].results
    last = {trial.number: trial.status for trial in told.trials}
    assert {number: row["status"] for number, row in copies[0].rows.items()} == last
    assert {number: trial[1] for number, trial in copies[0].trials.items()} == {t.number: t.id for t in told.trials}


def test_a_first_step_of_0_is_a_run_as_any_other(journal: Journal) -> None:
    journal.start("a")
    journal.report("a", 0, 0.5)
    assert not any("saved by stopping early" in line for line in head(read(journal))["lines"])
    journal.report("a", 1, 0.5)
    assert "1 of 1 epochs run: 0% saved by stopping early" in head(read(journal))["lines"]


def test_a_run_whose_reading_failed_is_read_anew_for_the_next_viewer(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching, ended, told = hub.Hub(), threading.Event(), list[str]()

    def faulty(run: LiveRun) -> Any:
        raise ZeroDivisionError("a bug")

    def hook(error: threading.ExceptHookArgs) -> None:
        told.append(str(error.exc_value))
        ended.set()

    journal.start("a")
    with monkeypatch.context() as broken:
        broken.setattr(hub, "head", faulty)
        broken.setattr(threading, "excepthook", hook)
        first = watching.watched(journal.folder)
        assert ended.wait(30)
    assert told == ["a bug"]
    second = watching.watched(journal.folder)
    assert second is not first
    give_up = time.monotonic() + 30
    while not second.is_read:
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_of_runs_without_viewers_a_few_are_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "MOST_IDLE", 2)
    monkeypatch.setattr(hub, "_ASKED_S", 0.0)
    watching, folders = hub.Hub(), [Journal(tmp_path, f"run{number}").folder for number in range(5)]

    def followed() -> set[str]:
        names = (thread.name for thread in threading.enumerate())
        return {name.rpartition("/")[2] for name in names if name.startswith(f"live page of {tmp_path}")}

    seen = watching.watched(folders[0])
    with seen.viewed(lambda: None):
        opened = [watching.watched(folder) for folder in folders[1:]]
        give_up = time.monotonic() + 30
        while followed() != {"run0", "run3", "run4"}:
            assert time.monotonic() < give_up
            time.sleep(0.01)
        assert watching.watched(folders[0]) is seen
        assert watching.watched(folders[4]) is opened[3]
        assert watching.watched(folders[1]) is not opened[0]


def test_another_server_continues_where_the_first_was_killed(journal: Journal) -> None:
    journal.start("a")
    journal.report("a", 1, 0.5)
    copy = whole(read(journal))
    journal.report("a", 2, 0.7)
    told = changes(read(journal), copy.id)
    assert not told["whole"]
    assert told["curves"] == [[1, 1, [2.0], [0.7]]]
    assert [value for _, value, _ in told["best"]] == [0.7]


def test_a_cursor_of_another_journal_gives_all(journal: Journal) -> None:
    journal.start("a")
    run = read(journal)
    for since in (
        "",
        ".",
        "x.1",
        "-1",
        f"{run.telling}.x",
        f"{run.telling}.99",
        f"{run.telling}.-1",
        cursor(run) + "9",
    ):
        assert changes(run, since)["whole"], since
    assert not changes(run, cursor(run))["whole"]


def test_a_journal_that_is_written_anew_begins_anew(journal: Journal) -> None:
    journal.start("a")
    journal.report("a", 1, 0.5)
    run = read(journal)
    copy = whole(run)
    first, *_ = JournalReader(journal.folder).new()
    trials = [{"what": "trial", "trial": t.id, "state": state_of(t)} for t in run.results.trials]
    began = {name: value for name, value in first.items() if name != "n"}
    events = [began, *trials, {"what": "recovered", "elapsed": 9.0, "more": True}]
    rewrite(journal.folder, 10, [{"n": 10 + i, **event} for i, event in enumerate(events)])
    run.read()
    told = changes(run, copy.id)
    assert told["whole"]
    take(copy, run)
    assert (copy.curves, copy.rows[1]["best"], run.elapsed) == ({1: [(1.0, 0.5)]}, ["0.5"], 9.0)
    assert vars(copy) | {"curves": {1: [(1.0, 0.5)]}} == vars(whole(read(journal)))


def test_nothing_new_is_nearly_nothing(journal: Journal) -> None:
    journal.start("a")
    run = read(journal)
    assert changes(run, cursor(run)) == {"id": cursor(run), "whole": False, "elapsed": 0.0}


def test_hostile_values_are_one_line_of_json(journal: Journal) -> None:
    hostile = "</script><img src=x onerror=alert(1)>\n\ndata: x\ud800" + "x" * 5000
    journal.start("a", **{hostile: hostile, "nan": float("nan"), "deep": {"er": [hostile]}})
    journal.report("a", 1, 0.5, metrics={hostile: 1.0})
    journal.fail("a", 1, hostile)
    journal.append("commanded", id=3, do=hostile, by=None, arguments=[hostile], trials="a")
    sent = encoded(changes(read(journal), ""))
    assert sent.isascii()
    assert "\n" not in sent
    assert len(sent) < 5000
    told = json.loads(sent)
    assert told["run"]["parameters"][0] == "lr"
    assert told["failures"][0]["message"].startswith("</script>")


def test_domains_that_no_form_can_hold_are_left_out(tmp_path: Path) -> None:
    deep: Any = 1.0
    for _ in range(150):
        deep = {"a": [deep]}
    many = {f"p{number}": {"uniform": [0, 1]} for number in range(1000)}
    space = {"lr": {"uniform": [0, 1], "when": {"act": "relu"}}, "act": "relu", "net": {"depth": {"randint": [1, 3]}}}
    hostile = {"nan": {"uniform": [float("nan"), 1]}, "long": {"choice": ["x" * 9000]}, "d": deep, "n" * 9000: 1}
    written = read(Journal(tmp_path, "hostile", search_space=space | hostile | many))
    told = json.loads(encoded(changes(written, "") | {"inf": [float("inf")]}))["run"]["space"]
    readable = {"lr": space["lr"], "act": "relu", "net.depth": {"randint": [1, 3]}}
    assert told | readable == told
    assert len(told) < 200
    assert not told.keys() & hostile.keys()
    assert changes(read(Journal(tmp_path, "python", search_space="space.py:make")), "")["run"]["space"] == {}


def test_values_that_are_no_numbers_are_null(journal: Journal) -> None:
    assert json.loads(encoded({"a": [float("nan"), (1.5, float("-inf"))]})) == {"a": [None, [1.5, None]]}


def test_a_journal_without_an_experiment_is_told_in_one_line(tmp_path: Path, journal: Journal) -> None:
    (tmp_path / "run" / "journal.jsonl").write_bytes(b"")
    with pytest.raises(EnvironmentFailure, match="does not tell an experiment yet"):
        LiveRun(journal.folder).read()


def test_a_trial_that_a_person_added_names_him(journal: Journal) -> None:
    journal.start("a")
    origin = {"by": "ada", "parent": "a", "step": 3, "begins_at": 3}
    journal.append("suggested", trial="b", config={}, origin=origin)
    journal.append("suggested", trial="c", config={}, origin={**origin, "parent": None, "step": None})
    copy = whole(read(journal))
    assert [copy.trials[number][3] for number in (1, 2, 3)] == ["", "ada: a clone of #1, from its report 3", "ada"]


def test_rungs_are_those_of_the_scheduler(journal: Journal, tmp_path: Path) -> None:
    assert changes(read(journal), "")["run"]["rungs"] == [1, 3, 9, 27, 30]
    other = Journal(tmp_path, "other", scheduler={"kind": "of.a.user", "class_path": "os.abort"})
    assert changes(read(other), "")["run"]["rungs"] == []
    damaged = Journal(
        tmp_path, "damaged", scheduler={"kind": "asha", "time_attr": "epoch", "max_t": 5, "brackets": "x"}
    )
    assert changes(read(damaged), "")["run"]["rungs"] == []


def test_a_large_run_is_small(tmp_path: Path) -> None:
    run = LiveRun(made_up_run(tmp_path / "large", 400, 20).folder)
    run.read()
    sent = encoded(changes(run, ""))
    assert len(sent) < 300_000
    assert len(whole(run).rows) == 400


def test_now_tells_what_trials_do(journal: Journal) -> None:
    journal.start("a")
    journal.start("b")
    trials = {"a": {"state": "running", "since": 5.0}, "b": {"state": "queued", "since": 1.0}}
    nodes = [{"GPU": 4.0, "CPU": 8.0}, {"CPU": 8.0}]
    journal.live(slots=4, limit=1, paused=True, nodes=nodes, available={"GPU": 3.5, "CPU": 16.0}, trials=trials)
    run = read(journal)
    with locked(journal.folder, LOCK):
        told = now(run.results)
    assert (told["state"], told["slots"], told["busy"], told["limit"], told["paused"]) == ("running", 4, 1, 1, True)
    assert (told["states"], told["queued"]) == ([[1, "running", 5.0]], 1)
    assert told["resources"] == [["GPU", 0.5, 4.0], ["CPU", 0.0, 16.0]]
    assert now(run.results)["state"] == "dead"


def test_now_tells_that_a_folder_has_vanished(journal: Journal, tmp_path: Path) -> None:
    run = read(journal)
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    assert now(run.results)["state"] == "gone"
    assert not run.read()
