"""A search rebuilt from its run folder continues as if nothing had happened. Without Ray: one worker, formulas."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem
from pydantic import TypeAdapter

from tests.journals import read_journal
from tests.tables import space
from tuner.errors import InputError
from tuner.runs.events import Event
from tuner.runs.history import EventApplier
from tuner.runs.journal import JournalWriter
from tuner.runs.loading import load_run, load_summary
from tuner.runs.results import EXPERIMENT, PROVENANCE, ResultSet, write_json
from tuner.runs.trial import Report, Segment
from tuner.schedulers import AnyScheduler
from tuner.schedulers.base import Decision, Exploit, Resume
from tuner.search.emitted_events import reported
from tuner.search.recovery import read_stored_search, recover
from tuner.search.snapshot import STATE, Snapshot, read_snapshot, write_snapshot
from tuner.search.state import SearchState
from tuner.searchers import AnySearch
from tuner.searchers.build import build_searcher
from tuner.spec.objective import Objective
from tuner.spec.problem import SearchProblem
from tuner.storage.folder import RunFolder

EPOCHS, TRIALS = 9, 14
RUNGS = {"time_attr": "epoch", "max_t": EPOCHS, "reduction_factor": 3}
SPACE = space({"x": {"uniform": [0, 1]}, "shape": {"choice": [(1, 2), (3,)]}, "n": {"randint": [1, 9]}})
SEARCHES: list[dict[str, Any]] = [
    {"kind": "random"},
    {"kind": "optuna", "sampler": "tpe", "n_startup_trials": 3},
    {"kind": "hyperopt", "n_initial_points": 3},
    {"kind": "bohb", "min_points_in_model": 2},
]
SCHEDULERS: list[dict[str, Any]] = [
    {"kind": "asha", "grace_period": 1, **RUNGS},
    {"kind": "asha", "variant": "promotion", "grace_period": 1, **RUNGS},
    {"kind": "asha", "grace_period": "auto", **RUNGS},
    {"kind": "hyperband", **RUNGS},
    {"kind": "pbt", "time_attr": "epoch", "max_t": EPOCHS, "perturbation_interval": 2},
]
PAIRS = [(search, SCHEDULERS[0]) for search in SEARCHES] + [(SEARCHES[0], scheduler) for scheduler in SCHEDULERS[1:]]
PAIRS += [(search, SCHEDULERS[1]) for search in (SEARCHES[2], {"kind": "optuna", "sampler": "cmaes"})]


def named(pair: tuple[dict[str, Any], dict[str, Any]]) -> str:
    return " ".join(
        str(v) for part in pair for k, v in part.items() if k in ("kind", "sampler", "variant", "grace_period")
    )


class Killed(Exception):
    """The driver is gone."""


class Search:
    """What the engine does with one worker: every event is journaled. The driver is killed after event ``until``."""

    def __init__(self, folder: RunFolder, pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
        self.folder = folder
        search, scheduler = pair
        self.search = TypeAdapter(AnySearch).validate_python(search)
        self.scheduler = TypeAdapter(AnyScheduler).validate_python(scheduler)

    def new_state(self) -> SearchState:
        task = SearchProblem(SPACE, ("max",), TRIALS, EPOCHS, 3)
        objectives = (Objective(metric="score", mode="max"),)
        searcher, scheduler = build_searcher(self.search, task), self.scheduler.build(task)
        return SearchState(searcher, scheduler, SPACE, objectives, "epoch", ends_at=EPOCHS)

    def begin(self) -> Search:
        self.folder.create()
        spec = {"objective": {"metric": "score", "mode": "max"}}
        self.folder.write(EXPERIMENT, b"objective: {metric: score, mode: max}\n")
        write_json(self.folder, PROVENANCE, {})
        self.results, self.state = ResultSet(self.folder, spec, {}), self.new_state()
        self.results.save()
        journal = JournalWriter(self.folder)
        journal.append("began", spec=spec, provenance={})
        journal.close()
        return self

    def resume(self) -> Search:
        found = recover(read_stored_search(load_run(self.folder)), self.new_state)
        self.results, self.state, self.notices = found.results, found.state, found.notices
        return self

    def snapshot_number(self) -> int:
        snapshot, _ = read_snapshot(self.folder)
        assert snapshot is not None
        return snapshot.number

    def go_on(self, until: int | None = None, save_after: int | None = None) -> Search:
        self.journal, self.history = JournalWriter(self.folder), EventApplier(self.results)
        self.until, self.save_after = until, save_after
        try:
            for trial_id in sorted(self.state.stopping):
                self.end(trial_id)
            while (trial_id := self.next_trial()) is not None:
                self.run(trial_id)
            for trial_id in sorted(self.state.paused):
                self.end(trial_id)
        except Killed:
            pass
        finally:
            self.journal.close()
        return self

    def write(self, what: str, **fields: Any) -> None:
        self.journal.append(what, **fields)
        if not self.folder.is_local:
            self.journal.sync()

    def happened(self) -> None:
        """After an event was written and its consequences drawn."""
        if self.journal.number == self.save_after:
            self.results.save()
            snapshot = Snapshot(self.journal.number, 0.0, self.state, lambda: self.results.trials)
            write_snapshot(self.folder, snapshot)
        if self.journal.number == self.until:
            raise Killed

    def next_trial(self) -> str | None:
        for trial in self.results.trials:
            if trial.status != "stopped" and trial.id not in self.state.paused:
                return trial.id
        while True:
            more = self.results.suggested < TRIALS
            could_come = self.state.more
            action = self.state.next_action(more)
            if action is not None or more != could_come:
                self.write("asked", more=more)
                self.happened()
            if isinstance(action, Resume):
                return action.trial_id
            if action is not None:
                self.end(action.trial_id)
            elif not more:
                return None
            else:
                return self.start()

    def start(self) -> str:
        trial_id = f"t{len(self.results.trials)}"
        config = self.state.suggest(trial_id)
        assert config is not None
        self.write("suggested", trial=trial_id, config=config)
        self.history.suggested(trial_id, config)
        self.state.add(trial_id, config)
        self.happened()
        return trial_id

    def run(self, trial_id: str) -> None:
        trial = self.results.trial(trial_id)
        self.write("started", trial=trial_id)
        self.history.started(trial_id)
        self.happened()
        begins_at = trial.origin.begins_at if trial.origin else 0
        for step in range(trial.steps + 1, EPOCHS + 1 - begins_at):
            config = trial.segments[-1].config if trial.segments else trial.config
            epoch = begins_at + step
            score = -((config["x"] - 0.3) ** 2) - abs(config["n"] - 4) / 50 + epoch / 100 * len(config["shape"])
            metrics = {"epoch": epoch, "score": score}
            decision = self.state.report(trial_id, step, metrics, float(step))
            segment = None
            if isinstance(decision, Exploit):
                segment = Segment(step, decision.configuration, decision.donor, step)
            report = Report(trial_id, step, float(step), float(self.journal.number), metrics)
            self.write("reported", **reported(report, decision, segment))
            self.history.reported(report, segment)
            self.happened()
            if decision is Decision.STOP or trial_id in self.state.orders.stopped:
                return self.end(trial_id)
            if decision is Decision.PAUSE:
                self.write("paused", trial=trial_id)
                self.history.paused(trial_id)
                return self.happened()
        return self.end(trial_id)

    def end(self, trial_id: str) -> None:
        self.write("ended", trial=trial_id, status="stopped", reason="", rung=None)
        self.history.ended(trial_id, "stopped", "")
        self.state.end(trial_id, failed=False)
        self.happened()


def happened(events: Iterable[Event]) -> list[Event]:
    """All but the starts and pauses of trials, which a kill repeats or swallows, and what numbers the events."""
    hidden = {"n", "timestamp"}
    return [{k: v for k, v in e.items() if k not in hidden} for e in events if e["what"] not in ("started", "paused")]


def outcome(results: ResultSet) -> list[Any]:
    return [
        (t.id, t.config, t.status, [(r.step, r.metrics) for r in t.reports], t.segments, t.best and t.best.step)
        for t in results.trials
    ]


@pytest.mark.parametrize("pair", PAIRS, ids=named)
def test_killed_after_any_event_the_search_ends_as_without(pair: Any, tmp_path: Path) -> None:
    whole = Search(RunFolder.at(tmp_path / "whole"), pair).begin().go_on()
    events = read_journal(whole.folder).events
    assert len(whole.results.trials) == TRIALS
    for n in range(1, len(events), 5):
        folder = RunFolder.at(tmp_path / "killed")
        Search(folder, pair).begin().go_on(until=n, save_after=n - 7 if n % 2 else None)
        again = Search(folder, pair).resume()
        assert again.notices == []
        again.go_on()
        assert outcome(again.results) == outcome(whole.results), f"killed after event {n}: {events[n - 1]}"
        assert happened(read_journal(folder).events) == happened(events)
        shutil.rmtree(folder.local_path)


class Counted:
    """A file system that counts the files that are opened."""

    def __init__(self, inner: FileSystem) -> None:
        self._inner, self.opened = inner, 0

    def open_input_file(self, path: str) -> Any:
        self.opened += 1
        return self._inner.open_input_file(path)

    open_input_stream = open_input_file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("save_after", [None, 90])
def test_a_resume_asks_an_object_store_for_each_segment_once_or_twice(
    save_after: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million reports are 200 segments. Without a snapshot the searcher and the scheduler need them again."""
    monkeypatch.setattr("tuner.runs.journal.writer.SEGMENT_BYTES", 1)
    monkeypatch.setattr("tuner.runs.journal.writer.SYNC_EVERY_S", 0.0)
    store = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    search = Search(RunFolder(store, "run", "store://run"), PAIRS[0]).begin()
    search.go_on(save_after=save_after)
    segments = len(list((tmp_path / "run" / "journal").iterdir()))
    assert segments > 100
    counted = Counted(store)
    folder = RunFolder(counted, "run", "store://run")
    recovered = recover(read_stored_search(load_summary(folder)), search.new_state)
    assert outcome(recovered.results) == outcome(search.results)
    assert recovered.usage.epochs == sum(trial.steps for trial in search.results.trials)
    assert segments < counted.opened < (2 if save_after is None else 1) * segments + 20


@pytest.mark.parametrize("pair", PAIRS, ids=named)
@pytest.mark.parametrize("left", [0, 30, 50])
def test_a_journal_that_lost_its_end_is_stood_in_for_by_the_snapshot(pair: Any, left: int, tmp_path: Path) -> None:
    """After the recovery both agree again: killed once more the search ends as it would have."""
    folder = RunFolder.at(tmp_path / "run")
    known = Search(folder, pair).begin().go_on(until=60, save_after=60)
    whole = RunFolder.at(tmp_path / "whole")
    shutil.copytree(folder.local_path, whole.local_path)
    expected = outcome(Search(whole, pair).resume().go_on().results)
    journal = folder.local_path / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:left]))
    again = Search(folder, pair).resume()
    assert outcome(again.results) == outcome(known.results)
    assert "lost" in again.notices[0]
    assert not read_journal(folder).damage
    again.go_on(until=again.snapshot_number() + 20)
    third = Search(folder, pair).resume()
    assert third.notices == []
    assert outcome(third.go_on().results) == expected


@pytest.mark.parametrize("left", [30, 50])
def test_a_snapshot_without_trials_leaves_the_journal_to_tell_them(left: int, tmp_path: Path) -> None:
    """As a large search writes it: where the journal lost its end, the search continues from what is left of it."""
    folder = RunFolder.at(tmp_path)
    known = Search(folder, PAIRS[0]).begin().go_on(until=60)
    write_snapshot(folder, Snapshot(60, 7.0, known.state, None))
    again = Search(folder, PAIRS[0]).resume()
    assert again.notices == []
    assert outcome(again.results) == outcome(known.results)
    journal = folder.local_path / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:left]))
    again = Search(folder, PAIRS[0]).resume()
    assert "events after number" in again.notices[0]
    assert 0 < sum(t.steps for t in again.results.trials) < sum(t.steps for t in known.results.trials)
    assert read_journal(folder).events[-1]["elapsed"] == 7.0
    assert len(again.go_on().results.trials) == TRIALS


@pytest.mark.parametrize("pair", PAIRS, ids=named)
@pytest.mark.parametrize("save_after", [None, 20, 50])
def test_a_damaged_line_costs_what_it_told(pair: Any, save_after: int | None, tmp_path: Path) -> None:
    folder = RunFolder.at(tmp_path)
    known = Search(folder, pair).begin().go_on(until=60, save_after=save_after)
    journal = folder.local_path / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    lost = read_journal(folder).events[39]
    damaged = bytes([lines[39][0] ^ 1]) + lines[39][1:]
    journal.write_bytes(b"".join([*lines[:39], damaged, *lines[40:]]))
    again = Search(folder, pair).resume()
    assert "event 40 is lost" in again.notices[0]
    reports = {(r.trial_id, r.step) for t in known.results.trials for r in t.reports}
    found = {(r.trial_id, r.step) for t in again.results.trials for r in t.reports}
    if save_after == 50:
        assert found == reports
    else:
        missing = {(lost["trial"], lost["step"])} if lost["what"] == "reported" else set()
        gone = lost["trial"] if lost["what"] == "suggested" else None
        assert found == {(trial, step) for trial, step in reports - missing if trial != gone}
    ended = again.go_on().results
    assert len(ended.trials) == TRIALS
    assert {trial.status for trial in ended.trials} == {"stopped"}
    assert not any("lost" in notice for notice in Search(folder, pair).resume().notices)


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_snapshot_is_passed_over(tmp_path: Path, damage: str) -> None:
    pair = SEARCHES[1], SCHEDULERS[1]
    whole = Search(RunFolder.at(tmp_path / "whole"), pair).begin().go_on()
    folder = RunFolder.at(tmp_path / "run")
    Search(folder, pair).begin().go_on(until=40, save_after=30)
    state = folder.local_path / STATE
    data = state.read_bytes()
    if damage == "gone":
        state.unlink()
    else:
        state.write_bytes(data[:-20] if damage == "cut" else data[:200] + bytes([data[200] ^ 1]) + data[201:])
    assert outcome(Search(folder, pair).resume().go_on().results) == outcome(whole.results)


def test_without_journal_and_snapshot_there_is_nothing_to_resume(tmp_path: Path) -> None:
    pair = SEARCHES[1], SCHEDULERS[0]
    Search(RunFolder.at(tmp_path), pair).begin().go_on(until=60, save_after=60)
    (tmp_path / STATE).unlink()
    (tmp_path / "journal.jsonl").unlink()
    with pytest.raises(InputError, match="neither its journal nor a snapshot"):
        Search(RunFolder.at(tmp_path), pair).resume()


def test_a_searcher_that_suggests_something_else_is_told_what_ran(tmp_path: Path) -> None:
    pair = SEARCHES[1], SCHEDULERS[0]
    killed = Search(RunFolder.at(tmp_path), pair).begin().go_on(until=60)
    again = Search(RunFolder.at(tmp_path), ({**pair[0], "n_startup_trials": 2}, pair[1])).resume()
    assert "its further draws are others" in again.notices[0]
    assert outcome(again.results) == outcome(killed.results)
    assert len(again.state.searcher._study.trials) == len(killed.results.trials)  # type: ignore[attr-defined]


def test_a_damaged_journal_is_repaired_also_where_the_searcher_suggests_something_else(tmp_path: Path) -> None:
    pair = SEARCHES[0], SCHEDULERS[0]
    Search(RunFolder.at(tmp_path), pair).begin().go_on(until=40, save_after=20)
    lines = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    lines[8] = b"x" + lines[8]
    (tmp_path / "journal.jsonl").write_bytes(b"".join(lines))
    suggest = SearchState.suggest
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SearchState, "suggest", lambda state, trial_id: {**suggest(state, trial_id), "x": 0.123})
        again = Search(RunFolder.at(tmp_path), pair).resume()
    assert any("event 9 is lost" in text for text in again.notices)
    assert any("its further draws are others" in text for text in again.notices)
    assert len(again.results.trials) > 2


def test_a_repeated_report_replaces_and_decides_nothing(tmp_path: Path) -> None:
    search = Search(RunFolder.at(tmp_path), (SEARCHES[0], SCHEDULERS[0])).begin()
    config = search.state.suggest("a")
    assert config is not None
    search.state.add("a", config)
    history = EventApplier(search.results)
    history.suggested("a", config)
    for step, score in [(1, 0.1), (2, 0.5), (3, 0.4), (2, 0.3), (3, 0.6)]:
        assert search.state.report("a", step, {"epoch": step, "score": score}, 1.0) is Decision.CONTINUE
        history.reported(Report("a", step, 0.0, 0.0, {"score": score}))
    (trial,) = search.results.trials
    assert [(r.step, r.metrics["score"]) for r in trial.reports] == [(1, 0.1), (2, 0.3), (3, 0.6)]
    assert trial.best is trial.reports[2]


def test_a_journal_that_nothing_explains_stays_as_it_is(tmp_path: Path) -> None:
    search = Search(RunFolder.at(tmp_path), PAIRS[0]).begin()
    search.go_on(until=30)
    file = tmp_path / "journal.jsonl"
    rest = file.read_bytes().partition(b"\n")[2]
    file.write_bytes(b"damaged\n" + rest)
    with pytest.raises(InputError, match=r"neither its journal nor experiment\.yaml tells what was searched"):
        read_stored_search(ResultSet(search.folder, {}, {}))
    assert file.read_bytes() == b"damaged\n" + rest
