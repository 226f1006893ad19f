"""A checkpoint that is not what was written is told by its manifest."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune import Checkpoint

from tuner.execution.report_interceptor import ReportInterceptor
from tuner.execution.restore_trials import skip_damaged_checkpoints
from tuner.schedulers.asha.spec import Asha
from tuner.schedulers.base import SchedulerSpec
from tuner.schedulers.fifo import Fifo
from tuner.schedulers.population.pbt import Pbt
from tuner.storage.folder import RunFolder
from tuner.storage.manifest import MANIFEST, contents, find_damage, make_durable, seal, size_of

ASHA = Asha(time_attr="epoch", max_t=9, grace_period=1, reduction_factor=3)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "deep").mkdir()
    (tmp_path / "model.pt").write_bytes(b"weights" * 1000)
    (tmp_path / "deep" / "x.gz").write_bytes(gzip.compress(b"y"))
    (tmp_path / "deep" / "empty").write_bytes(b"")
    found = RunFolder.at(tmp_path)
    seal(found, contents(found))
    return found


def test_what_was_written_is_whole(folder: RunFolder) -> None:
    assert find_damage(folder) == ""
    seal(folder, contents(folder))  # again: it does not list itself
    assert sorted(json.loads(folder.read(MANIFEST))["files"]) == ["deep/empty", "deep/x.gz", "model.pt"]
    assert find_damage(folder) == ""
    assert size_of(folder) == 7000 + len((folder.local_path / "deep" / "x.gz").read_bytes())


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda f: (f / "model.pt").write_bytes(b"weights" * 999), "model.pt has 6993 bytes instead of 7000"),
        (lambda f: (f / "model.pt").write_bytes(b"Weights" * 1000), "model.pt is not what was written"),
        (lambda f: (f / "deep" / "x.gz").unlink(), "deep/x.gz is missing"),
        (lambda f: (f / MANIFEST).write_bytes(b""), f"{MANIFEST} cannot be read"),
        (lambda f: (f / MANIFEST).write_bytes(b"[]"), f"{MANIFEST} cannot be read"),
        (
            lambda f: os.truncate(f / MANIFEST, 10**12),
            f"it cannot be read: {MANIFEST} has 1000000000000 bytes",
        ),
        (lambda f: f.rename(f.with_name("elsewhere")), "it is gone"),
    ],
)
def test_damage_is_named(folder: RunFolder, harm: Any, told: str) -> None:
    harm(folder.local_path)
    assert find_damage(folder).startswith(told)


@pytest.mark.parametrize(
    ("others", "torn"),
    [
        ({}, False),
        ({"a/checkpoint_000001": True, "b/checkpoint_000007": True}, True),
        ({"a/checkpoint_000001": True, "b/checkpoint_000007": False}, False),  # of a run of an older version
        ({"a/checkpoint_000001": True, "b/checkpoint_000007 newer": False}, True),  # it is being written
        ({"b/checkpoint_000007 newer": True}, False),
    ],
)
def test_without_a_manifest_it_is_torn_where_all_older_ones_have_one(
    tmp_path: Path, others: dict[str, bool], torn: bool
) -> None:
    made = tmp_path / "ray/a/checkpoint_000002"
    for name, sealed in {"a/checkpoint_000002": False, **others}.items():
        name, _, newer = name.partition(" ")
        (tmp_path / "ray" / name).mkdir(parents=True)
        (tmp_path / "ray" / name / "model.pt").write_bytes(b"")
        if sealed:
            (tmp_path / "ray" / name / MANIFEST).write_text("{}")
        os.utime(tmp_path / "ray" / name, (9, 9 + bool(newer)))
    assert find_damage(RunFolder.at(made)) == (f"{MANIFEST} is missing: it was not written to its end" if torn else "")


# --- which checkpoints are written ---


class Session:
    """Copies what is reported to ``place``, as Ray does."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.storage = SimpleNamespace(insist=lambda operation: operation())
        self.written: list[int] = []

    def report(self, metrics: dict, checkpoint: Any = None) -> None:
        copy = None
        if checkpoint is not None:
            folder = self.place / f"trial/checkpoint_{len(self.written):06}"
            shutil.copytree(checkpoint.path, folder)
            copy = Checkpoint.from_directory(str(folder))
            self.written.append(metrics["epoch"])
        self._report_training_result(SimpleNamespace(checkpoint=copy, metrics=metrics))

    def _report_training_result(self, result: Any) -> None:
        if result.checkpoint is not None:
            assert (Path(result.checkpoint.path) / MANIFEST).exists()
            assert find_damage(RunFolder.at(result.checkpoint.path)) == ""


def written(tmp_path: Path, every: int, scheduler: SchedulerSpec, epochs: range, **begun: int) -> list[int]:
    session = Session(tmp_path / "storage")
    saving = ReportInterceptor(session, every, scheduler)
    saving.begin(begun)
    (tmp_path / "reported").mkdir()
    for epoch in epochs:
        (tmp_path / "reported" / "state").write_text(str(epoch))
        session.report({"epoch": epoch}, checkpoint=Checkpoint.from_directory(str(tmp_path / "reported")))
        session.report({"epoch": epoch})
    return session.written


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


def test_a_report_changes_nothing_of_what_is_counted(tmp_path: Path) -> None:
    """Ray prefers a trainable's own number and seconds: a report 1.5 would be damage in the journal."""
    passed: list[dict[str, Any]] = []
    session = Session(tmp_path)
    session.report = lambda metrics, checkpoint=None: passed.append(metrics)  # type: ignore[method-assign]
    ReportInterceptor(session, 1, Fifo())
    session.report({"epoch": 1, "training_iteration": 1.5, "time_this_iter_s": -5.0})
    assert passed == [{"epoch": 1}]


def test_the_trainables_own_folder_stays_as_it_is_and_an_old_manifest_in_it_is_replaced(tmp_path: Path) -> None:
    reported, session = tmp_path / "reported", Session(tmp_path / "storage")
    reported.mkdir()
    (reported / MANIFEST).write_text("of the checkpoint that it began from")
    ReportInterceptor(session, 1, Fifo())
    session.report({"epoch": 1}, Checkpoint.from_directory(str(reported)))
    assert (reported / MANIFEST).read_text() == "of the checkpoint that it began from"


def test_what_the_copy_lost_is_damage(tmp_path: Path) -> None:
    class Loses(Session):
        def report(self, metrics: dict, checkpoint: Any = None) -> None:
            (Path(checkpoint.path) / "state").write_text("lon")
            super().report(metrics, checkpoint)

        def _report_training_result(self, result: Any) -> None:
            self.found = find_damage(RunFolder.at(result.checkpoint.path))

    reported, session = tmp_path / "reported", Loses(tmp_path / "storage")
    reported.mkdir()
    (reported / "state").write_text("long")
    ReportInterceptor(session, 1, Fifo())
    session.report({"epoch": 1}, Checkpoint.from_directory(str(reported)))
    assert session.found == "state has 3 bytes instead of 4"


class Tells(Session):
    """Notes which checkpoints are on the disk when the driver hears of each."""

    def __init__(self, storage: Path, scheduler: SchedulerSpec, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(storage)
        self.scheduler = scheduler
        self.synced: set[Path] = set()
        self.heard: list[list[int]] = []
        monkeypatch.setattr(os, "fsync", self.fsync)
        self.saving = ReportInterceptor(self, 1, scheduler)  # type: ignore[arg-type]

    def fsync(self, descriptor: int) -> None:
        self.synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())

    def folder(self, number: int) -> Path:
        return self.place / f"trial/checkpoint_{number:06}"

    def _report_training_result(self, result: Any) -> None:
        self.heard.append([n for n in range(len(self.written)) if self.parts(n) <= self.synced])

    def parts(self, number: int) -> set[Path]:
        made = self.folder(number)
        return {made, made / MANIFEST, made / "deep", made / "deep" / "state", made.parent, made.parent.parent}


@pytest.mark.parametrize(("scheduler", "at_once"), [(Fifo(), set()), (ASHA, {1, 3, 9})])
def test_a_checkpoint_is_on_the_disk_before_another_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: SchedulerSpec, at_once: set[int]
) -> None:
    (tmp_path / "reported" / "deep").mkdir(parents=True)
    (tmp_path / "reported" / "deep" / "state").write_text("x")
    session = Tells(tmp_path / "storage", scheduler, monkeypatch)
    for epoch in range(1, 10):
        session.report({"epoch": epoch}, Checkpoint.from_directory(str(tmp_path / "reported")))
        before, own = list(range(epoch - 1)), [epoch - 1]
        assert session.heard[-1][: epoch - 1] == before
        assert epoch not in at_once or session.heard[-1] == [*before, *own]
    session.saving.settle()
    assert session.parts(8) <= session.synced


def test_a_disk_that_does_not_take_a_checkpoint_is_the_trials_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    reported = tmp_path / "reported"
    reported.mkdir()
    session = Session(tmp_path / "storage")
    saving = ReportInterceptor(session, 1, Fifo())
    monkeypatch.setattr("tuner.storage.manifest._sync", sync)
    session.report({"epoch": 1}, Checkpoint.from_directory(str(reported)))
    with pytest.raises(OSError, match="Input/output"):
        saving.settle()
    saving.settle()  # it is said once
    session.report({"epoch": 2}, Checkpoint.from_directory(str(reported)))
    saving.begin({})  # another trial is not to blame
    saving.settle()


def test_a_checkpoint_that_is_deleted_meanwhile_is_no_error(folder: RunFolder) -> None:
    make_durable(folder / "nowhere")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_folders_that_cannot_be_synced_are_no_error_but_a_broken_disk_is(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fsync(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output") if number == errno.EIO else contextlib.nullcontext():
        make_durable(folder)


# --- what the driver makes of a checkpoint that a trial's process found damaged ---


def test_a_checkpoint_that_only_its_node_reads_as_damaged_stays(folder: RunFolder) -> None:
    latest = SimpleNamespace(checkpoint=Checkpoint.from_directory(folder.path))
    metadata = SimpleNamespace(checkpoint_manager=SimpleNamespace(latest_checkpoint_result=latest))
    results = SimpleNamespace(trial=lambda trial_id: None)  # nothing may be recorded
    recorder = SimpleNamespace(results=results, damage_of=find_damage)
    assert not skip_damaged_checkpoints(SimpleNamespace(trial_id="a", run_metadata=metadata), recorder)  # type: ignore[arg-type]
    assert find_damage(folder) == ""
