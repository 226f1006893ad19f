"""What an attempt at a trial writes to the run folder: nothing of another attempt's, and with patience."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem
from ray.train._internal.storage import StorageContext
from ray.tune import Checkpoint

from tests.search.test_storing import Clock
from tuner.execution import attempt_storage as module
from tuner.execution.attempt_storage import AttemptStorage
from tuner.execution.failure_classifier import StorageFails, classify
from tuner.execution.report_interceptor import ReportInterceptor
from tuner.schedulers.fifo import Fifo
from tuner.search.storage_patience import StoragePatience
from tuner.storage.folder import RunFolder
from tuner.storage.manifest import MANIFEST


@pytest.fixture
def rays(tmp_path: Path) -> StorageContext:
    """As a trial's process gets it."""
    return StorageContext(storage_path=str(tmp_path / "run"), experiment_dir_name="ray", trial_dir_name="t1")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(
        module, "StoragePatience", lambda seconds: StoragePatience(seconds, clock=found, sleep=found.sleep)
    )
    return found


def checkpoint(folder: Path, content: str) -> Checkpoint:
    folder.mkdir(exist_ok=True)
    (folder / "state").write_text(content)
    return Checkpoint.from_directory(str(folder))


def save(attempt: AttemptStorage, folder: Path, content: str) -> Path:
    """As `ray.tune.report` does."""
    attempt._update_checkpoint_index({})
    return Path(attempt.persist_current_checkpoint(checkpoint(folder, content)).path)


def test_an_elder_attempt_that_lives_leaves_its_successors_checkpoints_alone(
    tmp_path: Path, rays: StorageContext
) -> None:
    elder, successor = AttemptStorage(rays, 0.0), AttemptStorage(rays, 0.0)
    written = [save(successor, tmp_path / "b", f"successor {n}") for n in range(3)]
    for n in range(3):  # it comes to the same numbers later
        save(elder, tmp_path / "a", f"elder {n}")
    assert [(folder / "state").read_text() for folder in written] == [f"successor {n}" for n in range(3)]
    assert len({folder.name for folder in (tmp_path / "run/ray/t1").iterdir()}) == 6
    assert {folder.name[:17] for folder in written} == {f"checkpoint_00000{n}" for n in range(3)}
    assert successor.checkpoint_dir_name == written[-1].name


class Failing:
    """In place of Ray's copying: fails so often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, times: float) -> None:
        self.number, self.times = number, times
        real = StorageContext.persist_current_checkpoint

        def persist(storage: StorageContext, checkpoint: Checkpoint) -> Checkpoint:
            if self.times > 0:
                self.times -= 1
                raise OSError(self.number, os.strerror(self.number))
            return real(storage, checkpoint)

        monkeypatch.setattr(StorageContext, "persist_current_checkpoint", persist)


def test_storage_that_fails_for_a_while_costs_a_trial_nothing(
    tmp_path: Path, rays: StorageContext, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    Failing(monkeypatch, errno.ESTALE, 5)
    written = save(AttemptStorage(rays, 600.0), tmp_path / "a", "x")
    assert (written / "state").read_text() == "x"
    assert 0 < sum(clock.slept) < 60


def test_storage_that_fails_for_longer_is_named_with_the_node(
    tmp_path: Path, rays: StorageContext, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    Failing(monkeypatch, errno.ESTALE, float("inf"))
    with pytest.raises(StorageFails, match=f"cannot be written on node {os.uname().nodename}: .*Stale") as caught:
        save(AttemptStorage(rays, 60.0), tmp_path / "a", "x")
    assert sum(clock.slept) == 60
    assert classify(caught.value).kind == "data"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_run_folder_is_told_at_once(
    tmp_path: Path, rays: StorageContext, clock: Clock, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The driver says so and waits: nobody would learn of a trial that waits for room."""
    Failing(monkeypatch, number, float("inf"))
    with pytest.raises(StorageFails, match=os.strerror(number)):
        save(AttemptStorage(rays, 600.0), tmp_path / "a", "x")
    assert clock.slept == []


def test_a_checkpoint_that_is_not_there_is_the_trainables_own_error(
    tmp_path: Path, rays: StorageContext, clock: Clock
) -> None:
    attempt = AttemptStorage(rays, 600.0)
    attempt._update_checkpoint_index({})
    with pytest.raises(FileNotFoundError):
        attempt.persist_current_checkpoint(Checkpoint(str(tmp_path / "none"), LocalFileSystem()))
    assert clock.slept == []


def test_the_run_folder_is_asked_before_it_is_blamed(
    tmp_path: Path, rays: StorageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = AttemptStorage(rays, 600.0)
    attempt.check()
    monkeypatch.setattr(module, "probe", lambda folder: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(StorageFails, match="full"):
        attempt.check()


def test_the_manifest_of_a_checkpoint_waits_for_the_storage_as_its_files_do(
    tmp_path: Path, rays: StorageContext, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, heard, fails = RunFolder.write, list[Any](), iter(range(3))

    def failing(folder: RunFolder, name: str, data: bytes) -> None:
        if next(fails, None) is not None:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        write(folder, name, data)

    attempt = AttemptStorage(rays, 600.0)
    session: Any = SimpleNamespace(storage=attempt, report=None, _report_training_result=heard.append)
    ReportInterceptor(session, 1, Fifo())
    written = save(attempt, tmp_path / "a", "x")
    monkeypatch.setattr(RunFolder, "write", failing)
    session._report_training_result(SimpleNamespace(checkpoint=Checkpoint.from_directory(str(written)), metrics={}))
    assert (written / MANIFEST).exists()
    assert len(heard) == 1
    assert len(clock.slept) == 3
