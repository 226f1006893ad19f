"""The lock of a run folder: one process at a time, on a local disk and in an object store."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from tuner.errors import EnvironmentFailure, InputError, LockLost
from tuner.storage import lock as module
from tuner.storage.folder import RunFolder
from tuner.storage.lock import LOCK, STALE_AFTER_S, Lock, claims_of, holder, locked


def remote(folder: Path) -> RunFolder:
    """A folder of a file system that is not this machine's own."""
    return RunFolder(SubTreeFileSystem(str(folder), LocalFileSystem()), "run", "test://run")


@pytest.fixture(params=["local", "remote"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    folder = RunFolder.at(tmp_path / "run") if request.param == "local" else remote(tmp_path)
    folder.create()
    return folder


@pytest.fixture
def store(tmp_path: Path) -> RunFolder:
    folder = remote(tmp_path)
    folder.create()
    return folder


def claims(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "run" / claims_of(LOCK)).iterdir() if not path.name.startswith(".")]


def age(path: Path, seconds: float) -> None:
    """The store says that ``path`` was written so long ago."""
    at = path.stat().st_mtime - seconds
    os.utime(path, (at, at))


def taken_over(folder: RunFolder, tmp_path: Path) -> None:
    """Another process has taken the lock, as it thought its owner dead."""
    other = json.dumps({"owner": "b", "pid": 4711, "host": "elsewhere", "time": 0.0}).encode()
    if folder.is_local:
        folder.write(LOCK, other)
    else:
        (claim,) = claims(tmp_path)
        claim.unlink()
        folder.write(f"{claims_of(LOCK)}/b", other)


# --- one at a time ---


def test_a_second_process_is_refused_and_told_who_has_it(folder: RunFolder) -> None:
    with locked(folder):
        with pytest.raises(InputError, match=f"process {os.getpid()} on .* works on this run"), locked(folder):
            pass
        found = holder(folder)
        assert found is not None
        assert found["pid"] == os.getpid()
    assert holder(folder) is None
    with locked(folder):
        pass


def test_of_many_that_come_at_once_one_gets_it_at_most(folder: RunFolder) -> None:
    inside, most, barrier = [0], [0], threading.Barrier(8)

    def work() -> None:
        for _ in range(5):
            barrier.wait()
            try:
                with locked(folder):
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    time.sleep(0.001)
                    inside[0] -= 1
            except InputError:
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= 1
    with locked(folder):  # none has left a claim behind
        pass


def test_of_two_that_look_after_both_wrote_both_withdraw(store: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The moment at which reading before writing lets both proceed."""
    both, found, real = threading.Barrier(2), [], module._claims

    def look(place: RunFolder) -> Any:
        both.wait()
        return real(place)

    monkeypatch.setattr(module, "_claims", look)

    def work() -> None:
        try:
            with locked(store):
                found.append("got it")
        except InputError:
            found.append("refused")

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count("got it") <= 1


def test_who_waits_gets_it_when_it_is_given_back(folder: RunFolder) -> None:
    got = threading.Event()

    def work() -> None:
        with locked(folder, patience=60):
            got.set()

    with locked(folder):
        thread = threading.Thread(target=work)
        thread.start()
        assert not got.wait(0.05)
    assert got.wait(60)
    thread.join()


# --- fences ---


def test_a_lock_that_another_process_has_now_ends_the_search(folder: RunFolder, tmp_path: Path) -> None:
    with locked(folder) as lock:
        lock.check()
        taken_over(folder, tmp_path)
        with pytest.raises(LockLost, match=r"process 4711 on elsewhere has taken run\.lock over"):
            lock.check()
        with pytest.raises(LockLost):  # and stays lost
            lock.renew()
    assert LockLost.exit_status == 4


def test_renew_asks_the_storage_now_and_then_only(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked(folder) as lock:
        now = time.monotonic()
        monkeypatch.setattr(module, "_awake", lambda: now)
        lock.check()
        taken_over(folder, tmp_path)
        lock.renew()
        now += module.CHECK_EVERY_S
        with pytest.raises(LockLost):
            lock.renew()


def test_who_lost_it_leaves_the_lock_of_its_successor_alone(folder: RunFolder, tmp_path: Path) -> None:
    with locked(folder):
        taken_over(folder, tmp_path)
    assert b"4711" in folder.read(LOCK if folder.is_local else f"{claims_of(LOCK)}/b")


def test_a_local_lock_whose_file_is_gone_is_lost(tmp_path: Path) -> None:
    folder = RunFolder.at(tmp_path)
    with locked(folder) as lock:
        (tmp_path / LOCK).unlink()
        with pytest.raises(LockLost, match=r"another process has taken run\.lock over"):
            lock.check()


def test_a_storage_that_does_not_answer_is_not_a_lost_lock(tmp_path: Path) -> None:
    folder = RunFolder.at(tmp_path / "run")
    folder.create()
    with locked(folder) as lock:
        (tmp_path / "run").rename(tmp_path / "away")
        with pytest.raises(FileNotFoundError):
            lock.check()
        (tmp_path / "away").rename(tmp_path / "run")
        lock.check()


# --- object stores: who is alive ---


def test_a_dead_claim_is_taken_over_by_the_stores_own_clock(
    store: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked(store) as dead:
        (claim,) = claims(tmp_path)
        age(claim, STALE_AFTER_S + 1)
        with locked(store) as alive:
            alive.check()
            assert not claim.exists()
            with pytest.raises(LockLost, match=f"process {os.getpid()} on"):
                dead.check()


@pytest.mark.parametrize("wrong", [-3600.0, 90.0, 3600.0])
def test_hosts_whose_clocks_are_wrong_take_no_lock_of_a_living_search(
    store: RunFolder, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    with locked(store):
        real = time.time
        monkeypatch.setattr(module.time, "time", lambda: real() + wrong)  # type: ignore[attr-defined]
        with pytest.raises(InputError, match="works on this run"), locked(store):
            pass


def test_a_claim_is_renewed_from_a_thread_whatever_its_owner_does(
    store: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RENEW_EVERY_S", 0.01)
    with locked(store):
        (claim,) = claims(tmp_path)
        age(claim, 1000)
        old, deadline = claim.stat().st_mtime, time.monotonic() + 60
        while claim.stat().st_mtime == old:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    assert not claims(tmp_path)


def renewing(lock: Lock) -> Callable[[], None]:
    return lock._renew_claim  # type: ignore[attr-defined,no-any-return]


def test_a_claim_that_is_gone_is_not_written_again(store: RunFolder, tmp_path: Path) -> None:
    with locked(store) as lock:
        taken_over(store, tmp_path)
        renewing(lock)()
        assert [path.name for path in claims(tmp_path)] == ["b"]
        with pytest.raises(LockLost, match="process 4711 on elsewhere"):
            lock.renew()


def test_who_stood_still_between_look_and_write_does_not_disturb_its_successor(
    store: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds its claim, sleeps for a minute in which another one takes the lock, wakes up and writes its claim."""
    write, asleep = RunFolder.write, 0.0

    def late(place: RunFolder, name: str, data: bytes) -> None:
        nonlocal asleep
        if asleep == 0.0 and b"4711" not in data:
            asleep = STALE_AFTER_S
            taken_over(store, tmp_path)
        write(place, name, data)

    with locked(store) as lock:
        monkeypatch.setattr(module, "_awake", lambda: asleep)
        monkeypatch.setattr(RunFolder, "write", late)
        renewing(lock)()
        assert [path.name for path in claims(tmp_path)] == ["b"]
        with pytest.raises(LockLost, match="process 4711 on elsewhere"):
            lock.check()


def test_a_store_that_fails_while_the_claim_is_renewed_is_tried_again(
    store: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, failed, again = RunFolder.write, threading.Event(), threading.Event()

    def failing(place: RunFolder, name: str, data: bytes) -> None:
        if not failed.is_set():
            failed.set()
            raise OSError("503 Slow Down")
        write(place, name, data)
        again.set()

    monkeypatch.setattr(module, "_RENEW_EVERY_S", 0.01)
    with locked(store) as lock:
        monkeypatch.setattr(RunFolder, "write", failing)
        assert again.wait(60)
        lock.check()


# --- local file systems ---


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_and_not_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(file: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(EnvironmentFailure) as caught, locked(RunFolder.at(tmp_path), patience=60):
        pass
    assert os.strerror(number) in str(caught.value)
    assert "Lustre: -o flock" in str(caught.value)
    assert "another process" not in str(caught.value)
    assert holder(RunFolder.at(tmp_path)) is None


def test_to_look_who_works_on_a_run_refuses_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`holder` has the lock for a moment."""
    folder = RunFolder.at(tmp_path)
    with locked(folder):
        pass
    looking = os.open(tmp_path / LOCK, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH | fcntl.LOCK_NB)
    monkeypatch.setattr(module.time, "sleep", lambda seconds: os.close(looking))  # type: ignore[attr-defined]
    with locked(folder):
        pass


@pytest.mark.parametrize("make", ["link", "folder", "pipe"])
def test_what_is_no_file_is_refused(tmp_path: Path, make: str) -> None:
    folder, place, target = RunFolder.at(tmp_path), tmp_path / LOCK, tmp_path / "precious"
    target.write_text("stays")
    {"link": lambda: place.symlink_to(target), "folder": place.mkdir, "pipe": lambda: os.mkfifo(place)}[make]()
    with pytest.raises(EnvironmentFailure, match=r"run\.lock: a link or no regular file"), locked(folder):
        pass
    assert holder(folder) is None
    assert target.read_text() == "stays"


def test_the_lock_of_an_earlier_version_in_an_object_store_is_in_nobodys_way(tmp_path: Path) -> None:
    folder = remote(tmp_path)
    folder.create()
    folder.write(LOCK, json.dumps({"pid": 1, "host": "here", "time": 1.0}).encode())
    assert holder(folder) is None
    with locked(folder):
        assert holder(folder) is not None
