"""The journal: what was written is read again, damage costs what is damaged, and reading executes nothing."""

from __future__ import annotations

import base64
import errno
import json
import math
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from ray import cloudpickle

import tuner.runs.journal.reader
import tuner.runs.journal.writer
import tuner.storage.lock
from tests.journals import read_journal
from tuner.errors import EnvironmentFailure, InputError, LockLost
from tuner.runs.encoding import Opaque, opened
from tuner.runs.journal import JournalReader, JournalWriter, first_event, last_event, rewrite
from tuner.storage.folder import RunFolder
from tuner.storage.lock import LOCK, locked

SPEC = {"objective": {"metric": "loss", "mode": "min"}}
REPORT = {"trial": "a", "step": 1, "seconds": 1.0, "timestamp": 2.0, "checkpoint": None, "decision": "continue"}
EVENTS: list[dict[str, Any]] = [
    {"what": "suggested", "trial": "a", "config": {"lr": 0.1, "units": [3, 4]}},
    {"what": "reported", **REPORT, "metrics": {"loss": math.inf, "accuracy": np.float64(0.1), "n": np.int64(3)}},
    {"what": "suggested", "trial": "b", "config": {"shape": (2, ("x", None)), "nested": {"__tuple__": [1]}}},
    {"what": "ended", "trial": "a", "status": "stopped", "reason": "ä\nb", "rung": None},
]

STATE = {
    "number": 1,
    "config": {"lr": 0.1},
    "status": "paused",
    "reason": "",
    "rung": None,
    "micro_batch": None,
    "host": "h",
    "reports": [[1, 1.0, 2.0, {"loss": 1.0}, "ray/a/checkpoint_1"]],
    "segments": [{"after": 1, "config": {}, "donor": None, "donor_step": 0}],
    "failures": [{"kind": "hung", "message": "m", "step": 1, "micro_batch": None, "final": False}],
}
"""Of an event "trial"."""
WRONG: list[tuple[str, Any]] = [
    ("number", "x"),
    ("config", 5),
    ("status", ["paused"]),
    ("status", "gone"),
    ("host", []),
    ("reports", [[1, 1.0, 2.0, {"loss": 1.0}, "../../x"]]),
    ("reports", [["s", None, None, {}, None]]),
    ("reports", [5]),
    ("reports", [[1]]),
    ("segments", [{"after": "x"}]),
    ("failures", [5]),
    ("failures", [{"kind": 1}]),
]


def remote(folder: Path) -> RunFolder:
    """A folder of a file system that is not this machine's own."""
    return RunFolder(SubTreeFileSystem(str(folder), LocalFileSystem()), "run", "test://run")


def local(folder: Path) -> RunFolder:
    return RunFolder.at(folder / "run")


def written(folder: RunFolder) -> RunFolder:
    folder.create()
    journal = JournalWriter(folder)
    for event in EVENTS:
        journal.append(**event)
        journal.sync(now=True)
    journal.close()
    return folder


def numbers(folder: RunFolder) -> list[int]:
    return [event["n"] for event in read_journal(folder).events]


def line(event: Any) -> bytes:
    text = json.dumps(event).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


@pytest.fixture(params=[local, remote])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    return written(request.param(tmp_path))


def test_what_was_written_is_read_again(folder: RunFolder) -> None:
    journal = read_journal(folder)
    assert not journal.damage
    assert [event.pop("n") for event in journal.events] == [1, 2, 3, 4]
    assert journal.events[0] == EVENTS[0]
    assert journal.events[1]["metrics"] == {"loss": math.inf, "accuracy": 0.1, "n": 3}
    assert journal.events[2] == EVENTS[2]
    assert journal.events[3] == EVENTS[3]


def test_the_ends_are_read_alone(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_event(folder) == {"n": 1, **EVENTS[0]}
    monkeypatch.setattr(JournalReader, "new", None)
    assert last_event(folder) == {"n": 4, **EVENTS[3]}


def test_a_last_event_longer_than_what_is_looked_at_first(tmp_path: Path) -> None:
    folder = written(local(tmp_path))
    journal = JournalWriter(folder)
    journal.append("suggested", trial="c", config={"text": "x" * 200_000})
    journal.close()
    assert (last_event(folder) or {})["n"] == 5
    with open(tmp_path / "run/journal.jsonl", "ab") as file:
        file.write(b"0123")
    assert (last_event(folder) or {})["n"] == 5


@pytest.mark.parametrize("place", [local, remote])
def test_there_may_be_no_journal(place: Callable[[Path], RunFolder], tmp_path: Path) -> None:
    assert read_journal(place(tmp_path)).events == ()
    assert first_event(place(tmp_path)) is last_event(place(tmp_path)) is None


def test_a_second_writer_goes_on(folder: RunFolder) -> None:
    journal = JournalWriter(folder)
    assert journal.number == 4
    journal.append("started", trial="b")
    journal.close()
    assert [event["what"] for event in read_journal(folder).events][3:] == ["ended", "started"]
    assert numbers(folder) == [1, 2, 3, 4, 5]


def test_a_reader_goes_on_where_it_was(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner.runs.journal.writer, "SEGMENT_BYTES", 300)
    reader, journal = JournalReader(folder), JournalWriter(folder)
    assert len(list(reader.new())) == 4
    for step in range(20):
        journal.append("started", trial="b", elapsed=step)
        assert list(reader.new()) == [] or folder.is_local
        journal.sync(now=True)
        assert [event["elapsed"] for event in reader.new()] == [step] or folder.is_local
    assert reader.number == journal.number == 24
    assert numbers(folder) == list(range(1, 25))
    assert not reader.damage


def test_a_segment_grows_to_its_size_and_then_another_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner.runs.journal.writer, "SEGMENT_BYTES", 200)
    written(remote(tmp_path))
    journal = JournalWriter(remote(tmp_path))
    for _ in range(8):
        journal.append("started", trial="b")
        journal.sync(now=True)
    names = sorted(path.name for path in tmp_path.joinpath("run/journal").iterdir())
    assert names == ["000000001.jsonl", "000000003.jsonl", "000000005.jsonl", "000000010.jsonl"]
    assert numbers(remote(tmp_path)) == list(range(1, 13))


def test_cut_off_anywhere_what_came_before_stands_and_writing_goes_on(tmp_path: Path) -> None:
    file = written(local(tmp_path)).local_path / "journal.jsonl"
    data = file.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    folder = RunFolder.at(tmp_path / "cut")
    folder.create()
    for size in range(len(data)):
        (folder.local_path / "journal.jsonl").write_bytes(data[:size])
        whole = sum(end <= size for end in ends)
        reader = JournalReader(folder)
        assert len(list(reader.new())) == whole
        assert reader.torn == (size not in (0, *ends))
        assert not reader.damage
        writer = JournalWriter(folder)
        writer.append("started", trial="b")
        writer.close()
        assert numbers(folder) == list(range(1, whole + 2))


def test_a_flipped_bit_costs_the_line_it_is_in(tmp_path: Path) -> None:
    folder = written(local(tmp_path))
    file = folder.local_path / "journal.jsonl"
    data = file.read_bytes()
    for position in range(len(data) - 1):
        flipped = data[position] ^ 4
        file.write_bytes(data[:position] + bytes([flipped]) + data[position + 1 :])
        hit = data[:position].count(b"\n") + 1
        lost = {hit, hit + 1} if data[position] == ord("\n") else {hit}
        reader = JournalReader(folder)
        assert [event["n"] for event in reader.new()] == [n for n in (1, 2, 3, 4) if n not in lost]
        assert reader.damage
        assert reader.lost == ([] if 4 in lost else [(min(lost), max(lost))])


def test_a_lost_segment_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner.runs.journal.writer, "SEGMENT_BYTES", 1)
    folder = written(remote(tmp_path))
    (tmp_path / "run/journal/000000002.jsonl").unlink()
    assert numbers(folder) == [1, 3, 4]
    assert read_journal(folder).damage == "event 2 is lost"


def test_a_journal_written_anew_takes_the_place_of_the_old_one_at_once(folder: RunFolder) -> None:
    reader = JournalReader(folder)
    list(reader.new())
    began = {"what": "began", "spec": SPEC, "provenance": {}}
    assert rewrite(folder, 8, [began, {"what": "started", "trial": "a"}]) == 9
    assert [event["n"] for event in reader.new()] == [8, 9]
    assert numbers(folder) == [8, 9]
    assert not read_journal(folder).damage
    assert JournalWriter(folder).number == 9


def test_segments_are_in_order_also_after_a_billion_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their names grow longer there."""
    monkeypatch.setattr(tuner.runs.journal.writer, "SEGMENT_BYTES", 1)
    folder, first = remote(tmp_path), 10**9 - 1
    folder.create()
    JournalWriter(folder).close()
    rewrite(folder, first, [{"what": "began", "spec": SPEC, "provenance": {}}])
    reader = JournalReader(folder)
    assert [event["n"] for event in reader.new()] == [first]
    for number in (first + 1, first + 2):
        journal = JournalWriter(folder)
        journal.append("asked", more=True)
        journal.close()
        assert [event["n"] for event in reader.new()] == [number]
    assert numbers(folder) == [first, first + 1, first + 2]
    assert not reader.damage
    assert (last_event(folder) or {})["n"] == first + 2


def test_what_is_no_segment_is_passed_over(tmp_path: Path) -> None:
    folder = written(remote(tmp_path))
    (tmp_path / "run/journal/copy of 000000001.jsonl").write_bytes(line({"n": 9, "what": "asked", "more": True}))
    assert numbers(folder) == [1, 2, 3, 4]
    assert (last_event(folder) or {})["n"] == 4


def test_what_is_left_of_the_old_journal_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner.runs.journal.writer, "SEGMENT_BYTES", 1)
    folder = written(remote(tmp_path))
    old = (tmp_path / "run/journal/000000002.jsonl").read_bytes()
    (tmp_path / "run/journal/000000001.jsonl").unlink()
    rewrite(folder, 5, [{"what": "began", "spec": SPEC, "provenance": {}}])
    (tmp_path / "run/journal/000000002.jsonl").write_bytes(old)  # a kill came before it was deleted
    assert numbers(folder) == [5]
    assert not read_journal(folder).damage


@pytest.mark.parametrize(
    "event",
    [
        [],
        3,
        {"n": 1},
        {"n": "1", "what": "started", "trial": "a"},
        {"n": 1, "what": "started", "trial": "../a"},
        {"n": 1, "what": "started", "trial": 7},
        {"n": 1, "what": "suggested", "trial": "a"},
        {"n": 1, "what": "suggested", "trial": "a", "config": 3},
        {"n": 1, "what": "ended", "trial": "a", "status": "gone", "reason": "", "rung": None},
        {"n": 1, "what": "reported", **REPORT, "metrics": {}, "checkpoint": "ray/a/../../x"},
        {"n": 1, "what": "reported", **REPORT, "metrics": {}, "checkpoint": "/etc"},
        {"n": 1, "what": "reported", **REPORT, "metrics": {}, "segment": {"after": 1}},
        {"n": 1, "what": "reported", **REPORT, "metrics": {}, "step": -1},
        {"n": 1, "what": "reported", **REPORT, "metrics": {}, "seconds": math.nan},
        {"n": 1, "what": "reported", **REPORT, "metrics": {}, "seconds": 10**400},
        {"n": 1, "what": "reported", **REPORT, "metrics": {}, "timestamp": math.inf},
        {"n": 1, "what": "extended", "spec": SPEC, "reopened": 5},
        {"n": 1, "what": "extended", "spec": SPEC, "reopened": [["a"]]},
        {"n": 1, "what": "left", "interrupted": True, "reason": 5},
        {"n": 1, "what": "left", "interrupted": True, "elapsed": "x"},
        {"n": 1, "what": "left", "interrupted": True, "elapsed": math.inf},
        {"n": 1, "what": "started", "trial": "a", "host": ["h"]},
        {"n": 1, "what": "trial", "trial": "a", "state": {}},
        *({"n": 1, "what": "trial", "trial": "a", "state": STATE | {name: wrong}} for name, wrong in WRONG),
    ],
)
def test_what_is_no_event_is_damage_though_its_checksum_is_right(event: Any, tmp_path: Path) -> None:
    tmp_path.joinpath("journal.jsonl").write_bytes(line(event) + line({"n": 2, "what": "asked", "more": True}))
    journal = read_journal(RunFolder.at(tmp_path))
    assert [e["n"] for e in journal.events] == [2]
    assert journal.damage == "1 damaged line; event 1 is lost"


COMPARED = SPEC | {"scheduler": {"kind": "asha", "time_attr": "epoch"}}


@pytest.mark.parametrize(
    ("metrics", "whole"),
    [
        ({"loss": 1.0, "epoch": 2}, True),
        ({"loss": 1}, True),
        ({"loss": 1.0, "other": [1]}, True),
        ({}, False),
        ({"loss": "x"}, False),
        ({"loss": [1.0]}, False),
        ({"loss": math.nan}, False),
        ({"loss": 10**400}, False),
        ({"loss": 1.0, "epoch": {"a": 1}}, False),
        ({"loss": 1.0, "epoch": math.inf}, False),
        ({"loss": 1.0, "epoch": 1e300}, False),
    ],
)
@pytest.mark.parametrize("what", ["reported", "trial"])
def test_a_report_that_cannot_be_compared_is_damage(
    metrics: dict[str, Any], whole: bool, what: str, tmp_path: Path
) -> None:
    began = {"n": 1, "what": "began", "spec": COMPARED, "provenance": {}}
    event: dict[str, Any] = {"n": 2, "what": "reported", **REPORT, "metrics": metrics}
    if what == "trial":
        event = {"n": 2, "what": what, "trial": "a", "state": STATE | {"reports": [[1, 1.0, 2.0, metrics, None]]}}
    tmp_path.joinpath("journal.jsonl").write_bytes(line(began) + line(event))
    journal = read_journal(RunFolder.at(tmp_path))
    assert [e["n"] for e in journal.events] == ([1, 2] if whole else [1])
    assert journal.damage == ("" if whole else "1 damaged line")


def test_a_whole_trial_is_an_event(tmp_path: Path) -> None:
    tmp_path.joinpath("journal.jsonl").write_bytes(line({"n": 1, "what": "trial", "trial": "a", "state": STATE}))
    assert read_journal(RunFolder.at(tmp_path)).damage == ""


def test_depth_is_damage(tmp_path: Path) -> None:
    text = b"[" * 100_000
    tmp_path.joinpath("journal.jsonl").write_bytes(b"%08x %s\n" % (zlib.crc32(text), text))
    assert read_journal(RunFolder.at(tmp_path)).damage == "1 damaged line"


def test_a_file_of_nothing_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner.runs.journal.reader, "_LONGEST_LINE", 1 << 23)
    folder = written(local(tmp_path))
    os.truncate(tmp_path / "run/journal.jsonl", 1 << 40)
    journal = read_journal(folder)
    assert [event["n"] for event in journal.events] == [1, 2, 3, 4]
    assert journal.damage == "1 damaged line"
    assert last_event(folder) is None


class Armed:
    """Does something when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


def test_reading_opens_no_pickle_and_opening_only_the_users_own(tmp_path: Path) -> None:
    tmp_path.joinpath("run").mkdir()
    journal, boom = JournalWriter(local(tmp_path)), tmp_path / "boom"
    journal.append("suggested", trial="a", config={"act": Armed(boom), "lr": 0.1})
    journal.close()
    forged = base64.b64encode(cloudpickle.dumps(Armed(boom))).decode()
    event = {"what": "suggested", "trial": "b"}
    with open(tmp_path / "run/journal.jsonl", "ab") as file:
        file.write(line({"n": 2, **event, "config": {"x": {"__pickled__": ["00" * 32, forged]}}}))
        file.write(line({"n": 3, **event, "config": {"x": {"__pickled__": forged}}}))
    ours, *others = [event["config"] for event in read_journal(local(tmp_path)).events]
    assert repr(ours) == "{'act': <Python object>, 'lr': 0.1}"
    assert not boom.exists()
    for config in others:
        assert isinstance(config["x"], Opaque)
        with pytest.raises(InputError, match="--trust"):
            opened(config, trust=False)
    assert not boom.exists()
    opened(ours, trust=False)
    assert boom.exists()
    boom.rmdir()
    opened(others[0], trust=True)
    assert boom.exists()


@pytest.mark.parametrize(
    "value",
    [
        {"__pickled__": "gASVHAAAAA=="},
        {"__pickled__": ["", "gASVHAAAAA=="]},
        {"__tuple__": [1, 2]},
        {"__pickled__'": 1, "__tuple__''": 2, "other": 3},
    ],
)
def test_what_a_user_wrote_stays_what_it_is_whatever_it_looks_like(value: Any, tmp_path: Path) -> None:
    journal = JournalWriter(RunFolder.at(tmp_path))
    journal.append("suggested", trial="a", config={"innocent": value, "list": [value]})
    journal.close()
    (event,) = read_journal(RunFolder.at(tmp_path)).events
    assert event["config"] == {"innocent": value, "list": [value]}


def test_a_journal_is_a_plain_file(tmp_path: Path) -> None:
    precious, path, folder = tmp_path / "precious", tmp_path / "run/journal.jsonl", local(tmp_path)
    precious.write_text("precious")
    folder.create()
    for make in (lambda: path.symlink_to(precious), lambda: os.mkfifo(path), path.mkdir):
        make()
        for act in (JournalWriter, read_journal, first_event, last_event):
            with pytest.raises(EnvironmentFailure, match=r"journal.jsonl (is not a plain file|cannot be read)"):
                act(folder)
        path.rmdir() if path.is_dir() else path.unlink()
    assert precious.read_text() == "precious"


class Failing:
    """A system call that fails for a while, the first time in mid-write."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call, self.fails, self.calls = call, True, 0

    def __call__(self, file: int, *rest: Any) -> Any:
        if not self.fails:
            return self.call(file, *rest)
        self.calls += 1
        if self.calls == 1 and rest:
            return self.call(file, rest[0][:5], *rest[1:])
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("name", ["pwrite", "fdatasync"])
def test_storage_that_fails_for_a_while_loses_no_event(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(local(tmp_path))
    journal, call = JournalWriter(folder), Failing(getattr(os, name))
    monkeypatch.setattr(os, name, call)
    for _ in range(3):
        journal.append("started", trial="b")
    with pytest.raises(OSError, match="No space"):
        journal.sync(now=True)
    journal.append("started", trial="c")
    with pytest.raises(OSError, match="No space"):
        journal.sync(now=True)
    call.fails = False
    journal.append("started", trial="d")
    journal.close()
    assert numbers(folder) == list(range(1, 10))
    assert [event["trial"] for event in read_journal(folder).events[4:]] == ["b", "b", "b", "c", "d"]


def test_what_a_killed_driver_wrote_is_brought_to_the_disk_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, safe = written(local(tmp_path)), []
    monkeypatch.setattr(os, "fdatasync", lambda file: safe.append(os.fstat(file).st_size))
    journal = JournalWriter(folder)
    assert safe == [(tmp_path / "run/journal.jsonl").stat().st_size]
    assert journal.is_safe
    journal.append("asked", more=True)
    assert not journal.is_safe
    journal.sync(now=True)
    assert journal.is_safe


def test_a_store_that_fails_for_a_while_loses_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, write = written(remote(tmp_path)), RunFolder.write
    journal = JournalWriter(folder)

    def fails(self: RunFolder, name: str, data: bytes) -> None:
        raise OSError("503")

    monkeypatch.setattr(RunFolder, "write", fails)
    for _ in range(3):
        journal.append("started", trial="b")
        with pytest.raises(OSError, match="503"):
            journal.sync(now=True)
    monkeypatch.setattr(RunFolder, "write", write)
    journal.sync()  # at once, though it is not time yet
    assert numbers(folder) == list(range(1, 8))


def test_who_lost_the_lock_writes_over_nothing_of_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner.storage.lock, "CHECK_EVERY_S", 0.0)
    folder = local(tmp_path)
    folder.create()
    with locked(folder) as lock:
        elder = JournalWriter(folder, lock)
        elder.append("asked", more=True)
        elder.sync(now=True)
        (tmp_path / "run" / LOCK).write_text(json.dumps({"owner": "another"}))
        successor = JournalWriter(folder)
        successor.append("asked", more=False)
        successor.close()
        elder.append("paused", trial="a")
        with pytest.raises(LockLost):
            elder.sync()
    journal = read_journal(folder)
    assert not journal.damage
    assert [event.get("more") for event in journal.events] == [True, False]


@pytest.mark.parametrize(("time_attr", "known"), [("epoch", 1), ("training_iteration", 2)])
def test_a_report_that_lost_its_progress_is_damage(time_attr: str, known: int, tmp_path: Path) -> None:
    folder = RunFolder.at(tmp_path)
    writer = JournalWriter(folder)
    scheduler = {"kind": "asha", "time_attr": time_attr, "max_t": 9}
    writer.append("began", spec=SPEC | {"scheduler": scheduler}, provenance={})
    report = {"trial": "a1b2c3d4", "seconds": 1.0, "timestamp": 1.0, "checkpoint": None}
    writer.append("reported", step=1, metrics={"loss": 1.0, "epoch": 1}, **report)
    writer.append("reported", step=2, metrics={"loss": 1.0}, **report)
    writer.close()
    reader = JournalReader(folder)
    assert [event["step"] for event in reader.new() if event["what"] == "reported"] == [1, 2][:known]
    assert bool(reader.damage) == (known == 1)
