"""A checkpoint that is not what was written is told by its manifest."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tuner.engine.saving import Saving
from tuner.manifest import MANIFEST, damage, size_of, write_manifest
from tuner.schedulers.asha import Asha
from tuner.schedulers.base import SchedulerSpec
from tuner.schedulers.fifo import Fifo
from tuner.schedulers.pbt import Pbt
from tuner.storage import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "deep").mkdir()
    (tmp_path / "model.pt").write_bytes(b"weights" * 1000)
    (tmp_path / "deep" / "x.gz").write_bytes(gzip.compress(b"y"))
    (tmp_path / "deep" / "empty").write_bytes(b"")
    found = RunFolder.at(tmp_path)
    write_manifest(found)
    return found


def test_what_was_written_is_whole(folder: RunFolder) -> None:
    assert damage(folder) == ""
    write_manifest(folder)  # again: it does not list itself
    assert sorted(json.loads(folder.read(MANIFEST))["files"]) == ["deep/empty", "deep/x.gz", "model.pt"]
    assert damage(folder) == ""
    assert size_of(folder) == 7000 + len((folder.local_path / "deep" / "x.gz").read_bytes())


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda f: (f / "model.pt").write_bytes(b"weights" * 999), "model.pt has 6993 bytes instead of 7000"),
        (lambda f: (f / "model.pt").write_bytes(b"Weights" * 1000), "model.pt is not what was written"),
        (lambda f: (f / "deep" / "x.gz").unlink(), "deep/x.gz is missing"),
        (lambda f: (f / MANIFEST).write_bytes(b""), f"{MANIFEST} cannot be read"),
        (lambda f: (f / MANIFEST).write_bytes(b"[]"), f"{MANIFEST} cannot be read"),
        (lambda f: f.rename(f.with_name("elsewhere")), "it is gone"),
    ],
)
def test_damage_is_named(folder: RunFolder, harm: Any, told: str) -> None:
    harm(folder.local_path)
    assert damage(folder).startswith(told)


def test_without_a_manifest_a_checkpoint_is_taken_as_it_is(folder: RunFolder) -> None:
    (folder.local_path / MANIFEST).unlink()
    (folder.local_path / "model.pt").write_bytes(b"")
    assert damage(folder) == ""


# --- which checkpoints are written ---


class Session:
    def __init__(self) -> None:
        self.written: list[int] = []

    def report(self, metrics: dict, checkpoint: Any = None) -> None:
        if checkpoint is not None:
            assert damage(RunFolder.at(checkpoint.path)) == ""
            assert (Path(checkpoint.path) / MANIFEST).exists()
            self.written.append(metrics["epoch"])

    def _report_training_result(self, result: Any) -> None: ...


def written(tmp_path: Path, every: int, scheduler: SchedulerSpec, epochs: range, **begun: int) -> list[int]:
    from ray.tune import Checkpoint

    session = Session()
    saving = Saving(session, every, scheduler)
    saving.begin(begun)
    for epoch in epochs:
        session.report({"epoch": epoch}, checkpoint=Checkpoint.from_directory(str(tmp_path)))
        session.report({"epoch": epoch})
    return session.written


ASHA = Asha(time_attr="epoch", max_t=9, reduction_factor=3)


@pytest.mark.parametrize(
    ("every", "scheduler", "expected"),
    [
        (1, Fifo(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (4, Fifo(), [4, 8]),
        (99, ASHA, [1, 3, 9, 10]),
        (4, ASHA, [1, 3, 7, 9, 10]),
        (99, Pbt(time_attr="epoch", max_t=10, perturbation_interval=4), [4, 8, 10]),
    ],
)
def test_every_nth_and_those_at_which_a_trial_may_halt(
    tmp_path: Path, every: int, scheduler: SchedulerSpec, expected: list[int]
) -> None:
    assert written(tmp_path, every, scheduler, range(1, 11)) == expected


def test_a_restarted_trial_writes_the_same_ones(tmp_path: Path) -> None:
    assert written(tmp_path, 4, ASHA, range(4, 11), epoch=3, training_iteration=6) == [7, 9, 10]


def test_a_folder_that_cannot_be_written_has_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.tune import Checkpoint

    def refused(self: RunFolder, name: str, data: bytes) -> None:
        raise PermissionError(name)

    monkeypatch.setattr(RunFolder, "write", refused)
    seen: list[Any] = []
    session = Session()
    session.report = lambda metrics, checkpoint=None: seen.append(checkpoint)  # type: ignore[method-assign]
    Saving(session, 1, Fifo()).report({}, Checkpoint.from_directory(str(tmp_path)))
    assert seen[0].path == str(tmp_path)
