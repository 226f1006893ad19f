"""The snapshot of a search: used where it fits, and passed over where it does not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tuner.runs.trial import Report, Trial
from tuner.search.snapshot import STATE, Snapshot, read_snapshot, write_snapshot
from tuner.search.state import SearchState
from tuner.searchers.build import build_searcher
from tuner.searchers.random import Random
from tuner.spec.objective import Objective
from tuner.spec.problem import SearchProblem
from tuner.storage.folder import RunFolder
from tuner.storage.signing import key_file, why_unused

from tests.tables import space  # isort: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run folder with the snapshot of a user whose key is in ``config``."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = RunFolder.at(tmp_path / "run")
    folder.create()
    task = SearchProblem(space({"x": {"uniform": [0, 1]}}), ("max",), 5, 9, 3)
    state = SearchState(
        build_searcher(Random(), task), None, task.space, (Objective(metric="score", mode="max"),), "training_iteration"
    )
    trials = [Trial(f"t{i}", i, {"x": i}, reports=[Report(f"t{i}", 1, 1.0, 1.0, {"score": 1})]) for i in range(1201)]
    write_snapshot(folder, Snapshot(7, 1.5, state, lambda: trials))
    return folder


def changed(folder: RunFolder, **head: Any) -> None:
    """Other words in the snapshot's first line."""
    first, _, content = folder.read(STATE).partition(b"\n")
    folder.write(STATE, json.dumps(json.loads(first) | head).encode() + b"\n" + content)


def test_it_is_read_again(folder: RunFolder) -> None:
    snapshot, reason = read_snapshot(folder)
    assert snapshot is not None
    assert (snapshot.number, snapshot.elapsed, reason) == (7, 1.5, "")
    assert len(snapshot.trials()) == len(trials := snapshot.trials())
    assert [trial.id for trial in trials] == [f"t{i}" for i in range(1201)]
    assert trials[-1].reports[0].metrics == {"score": 1}


def test_none_is_none(tmp_path: Path) -> None:
    assert read_snapshot(RunFolder.at(tmp_path)) == (None, "")


def test_one_of_another_version_is_passed_over(folder: RunFolder) -> None:
    changed(folder, versions={"format": 1, "tuner": "0.0.9"})
    assert read_snapshot(folder) == (None, "is of another version of tuner, Python or their packages")


@pytest.mark.parametrize("head", [b"", b"0badc0de", b"[]", b"{}", b"\x80\x04"])
def test_what_is_no_snapshot_is_passed_over(folder: RunFolder, head: bytes) -> None:
    folder.write(STATE, head + b"\n" + b"x")
    assert read_snapshot(folder) == (None, "is damaged, or of another version of tuner")


def test_one_that_does_not_unpickle_is_passed_over(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("tuner.searchers.random.RandomSearcher")
    snapshot, reason = read_snapshot(folder)
    assert snapshot is None
    assert reason.startswith("cannot be read: AttributeError: ")


def test_one_of_another_user_is_opened_only_with_trust(folder: RunFolder) -> None:
    key_file().unlink()
    snapshot, reason = read_snapshot(folder)
    assert snapshot is None
    assert "another user" in reason
    assert "--trust" in reason
    snapshot, _ = read_snapshot(folder, trust=True)
    assert snapshot is not None


def test_the_key_is_for_its_user_alone(folder: RunFolder) -> None:
    assert key_file().stat().st_mode & 0o777 == 0o600
    assert key_file().parent.stat().st_mode & 0o777 == 0o700
    key_file().chmod(0o644)  # others may have read it
    assert read_snapshot(folder)[0] is None


def test_what_is_no_file_is_passed_over(folder: RunFolder) -> None:
    (folder.local_path / STATE).unlink()
    os.mkfifo(folder.local_path / STATE)
    assert read_snapshot(folder) == (None, f"cannot be read: {STATE} is not a plain file")


def test_one_without_end_is_passed_over(folder: RunFolder) -> None:
    with (folder.local_path / STATE).open("wb") as file:
        file.truncate(10**12)
    assert read_snapshot(folder) == (None, f"cannot be read: {STATE} has {10**12} bytes, and at most {2**30} are read")


def test_a_key_that_is_not_used_says_why(folder: RunFolder) -> None:
    key = key_file()
    assert why_unused() == ""
    key.chmod(0o644)
    assert "has mode 0644, so that others can sign too: chmod 600" in why_unused()
    key.unlink()
    os.mkfifo(key, 0o600)
    assert why_unused() == f"{key} is not a key of tuner: delete it"
    assert read_snapshot(folder)[0] is None


def test_without_a_place_for_a_key_nothing_is_ours(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null/nowhere")
    snapshot, _ = read_snapshot(folder, trust=True)
    assert snapshot is not None
    write_snapshot(folder, snapshot)
    assert read_snapshot(folder)[0] is None
