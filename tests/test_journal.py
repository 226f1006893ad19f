"""The journal: what was written is read again, and damage costs nothing that came before it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from tuner.journal import JournalWriter, exact, read_journal
from tuner.storage import RunFolder

EVENTS: list[dict[str, Any]] = [
    {"what": "suggested", "trial": "a", "config": {"lr": 0.1, "units": [3, 4]}},
    {"what": "reported", "metrics": {"loss": math.inf, "accuracy": np.float64(0.1), "n": np.int64(3)}},
    {"what": "suggested", "config": exact({"shape": (2, 3), "f": abs})},
    {"what": "ended", "reason": "ä\nb"},
]


def remote(folder: Path) -> RunFolder:
    """A folder of a file system that is not this machine's own."""
    return RunFolder(SubTreeFileSystem(str(folder), LocalFileSystem()), "run", "test://run")


def written(folder: RunFolder) -> RunFolder:
    folder.create()
    journal = JournalWriter(folder)
    for event in EVENTS:
        journal.append(**event)
        journal.sync(now=True)
    journal.close()
    return folder


@pytest.fixture(params=["local", "remote"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    return written(RunFolder.at(tmp_path / "run") if request.param == "local" else remote(tmp_path))


def test_what_was_written_is_read_again(folder: RunFolder) -> None:
    journal = read_journal(folder)
    assert not journal.damage
    assert [event.pop("n") for event in journal.events] == [1, 2, 3, 4]
    assert journal.events[0] == EVENTS[0]
    assert journal.events[1]["metrics"] == {"loss": math.inf, "accuracy": 0.1, "n": 3}
    assert journal.events[2]["config"] == {"shape": (2, 3), "f": abs}
    assert journal.events[3] == EVENTS[3]


def test_a_second_writer_goes_on(folder: RunFolder) -> None:
    journal = JournalWriter(folder)
    assert journal.number == 4
    journal.append("started", trial="b")
    journal.close()
    assert [event["what"] for event in read_journal(folder).events][3:] == ["ended", "started"]
    assert read_journal(folder).events[-1]["n"] == 5


def test_no_journal_is_no_damage(tmp_path: Path) -> None:
    assert read_journal(RunFolder.at(tmp_path)).events == ()


def test_cut_off_anywhere_what_came_before_stands_and_writing_goes_on(tmp_path: Path) -> None:
    file = written(RunFolder.at(tmp_path / "whole")).local_path / "journal.jsonl"
    data = file.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    for size in range(len(data)):
        folder = RunFolder.at(tmp_path / "cut")
        folder.create()
        (folder.local_path / "journal.jsonl").write_bytes(data[:size])
        whole = sum(end <= size for end in ends)
        journal = read_journal(folder)
        assert len(journal.events) == whole
        assert bool(journal.damage) == (size not in (0, *ends))
        writer = JournalWriter(folder)
        writer.append("started", trial="b")
        writer.close()
        assert [event["n"] for event in read_journal(folder).events] == list(range(1, whole + 2))


def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    folder = written(RunFolder.at(tmp_path / "run"))
    file = folder.local_path / "journal.jsonl"
    data = file.read_bytes()
    for position in range(0, len(data), 7):
        file.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        journal = read_journal(folder)
        assert journal.damage
        assert len(journal.events) == data[:position].count(b"\n")


def test_a_lost_segment_ends_what_is_read(tmp_path: Path) -> None:
    folder = written(remote(tmp_path))
    (tmp_path / "run/journal/000000002.jsonl").unlink()
    assert [event["n"] for event in read_journal(folder).events] == [1]
    writer = JournalWriter(folder)
    writer.append("started", trial="b")
    writer.close()
    assert [event["what"] for event in read_journal(folder).events] == ["suggested", "started"]
