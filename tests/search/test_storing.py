"""A run folder that cannot be used for a while: what waits, what is left out, and when the search ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.errors import EnvironmentFailure, LockLost
from tuner.search import storage_patience
from tuner.search.control import SearchControl
from tuner.search.storage_patience import FIRST_S, LONGEST_S, StoragePatience, is_of_a_full_disk, probe
from tuner.search.storing import RunFolderWriter
from tuner.storage.folder import RunFolder


class Clock:
    """Time that passes where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Store:
    """Fails until ``until``."""

    def __init__(self, clock: Clock, until: float) -> None:
        self.clock, self.until = clock, until
        self.calls = 0
        self.done: list[str] = []

    def use(self, what: str = "x") -> str:
        self.calls += 1
        if self.clock.now < self.until:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        self.done.append(what)
        return what

    def doing(self, what: str) -> Callable[[], None]:
        def do() -> None:
            self.use(what)

        return do


@pytest.fixture
def clock() -> Clock:
    return Clock()


# --- patience ---


def test_it_is_tried_again_ever_more_rarely(clock: Clock) -> None:
    store = Store(clock, clock.now + 100)
    assert StoragePatience(600, clock=clock, sleep=clock.sleep).insist(store.use) == "x"
    assert clock.slept[:4] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
    assert max(clock.slept) == LONGEST_S
    assert clock.now < 1100 + LONGEST_S


def test_it_is_given_up_after_its_time_and_not_before(clock: Clock) -> None:
    store = Store(clock, clock.now + 1e9)
    with pytest.raises(OSError, match="Stale"):
        StoragePatience(60, clock=clock, sleep=clock.sleep).insist(store.use)
    assert clock.now == 1060
    assert store.calls == 1 + len(clock.slept)  # the last time at the very end


def test_what_will_not_end_by_itself_is_not_waited_for(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "trials.csv" / "x").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        StoragePatience(600, clock=clock, sleep=clock.sleep).insist(
            lambda: RunFolder.at(tmp_path).write("trials.csv", b"")
        )
    assert clock.slept == []


def test_time_is_counted_anew_once_it_worked(clock: Clock) -> None:
    waiting = StoragePatience(60, clock=clock, sleep=clock.sleep)
    for _ in range(3):
        waiting.insist(Store(clock, clock.now + 50).use)
    assert waiting.error is None


# --- the driver ---


@pytest.fixture
def control(tmp_path: Path) -> SearchControl:
    said: list[str] = []
    control = SearchControl(storage_patience=600.0, say=said.append)
    control.said = said  # type: ignore[attr-defined]
    return control


@pytest.fixture
def storing(tmp_path: Path, control: SearchControl, clock: Clock) -> RunFolderWriter:
    folder = RunFolder.at(tmp_path / "run")
    folder.create()
    return RunFolderWriter(folder, control, StoragePatience(600, clock=clock, sleep=clock.sleep))


def said(control: SearchControl) -> list[str]:
    return control.said  # type: ignore[attr-defined,no-any-return]


def test_what_fails_for_a_while_is_told_twice_and_not_waited_for(
    storing: RunFolderWriter, control: SearchControl, clock: Clock, tmp_path: Path
) -> None:
    store = Store(clock, clock.now + 100)
    for _ in range(3000):
        storing.attempt(store.doing("x"))
        clock.now += 0.1
        if not storing.fails:
            break
    assert clock.slept == []
    assert 1100 <= clock.now < 1100 + LONGEST_S
    assert store.calls < 20
    first, last = said(control)
    assert f"{tmp_path}/run cannot be used: [Errno 116] Stale file handle; no trial starts" in first
    assert "tried again for 10m00s (failures.storage_patience)" in first
    assert "can be used again, after 1m4" in last
    assert control.fatal is None


def test_what_fails_for_longer_ends_the_search_which_can_be_resumed(
    storing: RunFolderWriter, control: SearchControl, clock: Clock, tmp_path: Path
) -> None:
    store = Store(clock, clock.now + 1e9)

    def search() -> None:
        for _ in range(100000):
            storing.attempt(store.doing("x"))
            clock.now += 0.1

    with pytest.raises(KeyboardInterrupt):
        search()
    assert 1600 <= clock.now < 1601
    assert isinstance(control.fatal, EnvironmentFailure)
    assert "cannot be written: [Errno 116] Stale file handle" in str(control.fatal)
    assert f"python -m tuner resume {tmp_path}/run" in str(control.fatal)
    assert control.interrupted


def test_what_can_wait_is_done_later_and_in_order(storing: RunFolderWriter, clock: Clock) -> None:
    store = Store(clock, clock.now + 100)
    storing.later(store.doing("delete a"))
    storing.later(store.doing("delete b"))
    assert store.calls == 1  # the second has to wait for the first
    assert storing.insist(lambda: store.use("copy to a")) == "copy to a"
    assert store.done == ["delete a", "delete b", "copy to a"]
    storing.later(store.doing("delete c"))
    assert store.done[-1] == "delete c"


def test_somebody_who_could_not_write_is_believed_only_if_nobody_can(
    storing: RunFolderWriter, control: SearchControl, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert storing.answers()
    assert not list((tmp_path / "run").iterdir())
    assert said(control) == []
    monkeypatch.setattr("tuner.search.storing.probe", lambda folder: Store(clock, 1e9).use())
    assert not storing.answers()
    assert len(said(control)) == 1


def test_once_the_run_is_another_ones_nothing_is_done(storing: RunFolderWriter, control: SearchControl) -> None:
    def lost() -> None:
        raise LockLost("process 4711 has it")

    with pytest.raises(KeyboardInterrupt):
        storing.attempt(lost)
    assert "process 4711 has it; to continue the search when the other has ended" in str(control.fatal)
    done: list[int] = []
    for use in (storing.attempt, storing.insist, storing.later):
        with pytest.raises(KeyboardInterrupt):
            use(lambda: done.append(1))
    assert not done


# --- whose disk is full ---


def test_a_probe_is_large_enough_to_find_a_disk_that_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(RunFolder, "write", lambda folder, name, data: sizes.append(len(data)))
    probe(RunFolder.at(tmp_path))
    assert sizes == [storage_patience.PROBE_BYTES]


def test_what_torch_says_of_a_full_disk_is_understood() -> None:
    import torch

    for zipped in (True, False):
        with pytest.raises((OSError, RuntimeError)) as caught:
            torch.save({"a": torch.zeros(100_000)}, "/dev/full", _use_new_zipfile_serialization=zipped)
        assert is_of_a_full_disk(caught.value)
    wrapped = ValueError("cannot save")
    wrapped.__cause__ = caught.value
    assert is_of_a_full_disk(wrapped)


@pytest.mark.parametrize("error", [RuntimeError("CUDA error"), FileNotFoundError(2, "x"), ValueError("No space")])
def test_other_errors_are_not_of_a_full_disk(error: Exception) -> None:
    assert not is_of_a_full_disk(error)
