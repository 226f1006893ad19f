"""Ray's token and the folder of its sessions are this user's alone; in a whole search: tests/cli."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from tuner.doctor import system
from tuner.errors import EnvironmentFailure
from tuner.execution import local_cluster
from tuner.execution.auth import make_token
from tuner.execution.local_cluster import private_folder
from tuner.experiment.reader import load_experiment
from tuner.plan.cluster import this_machine
from tuner.plan.planner import make_plan

MINIMAL = {
    "trainable": "trainables.digits:train",
    "search_space": {"lr": {"loguniform": [1e-4, 1]}},
    "objective": {"metric": "val_accuracy", "mode": "max"},
    "resources": {"gpu": 0},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    before = os.umask(0o000)
    yield tmp_path
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_is_made_for_its_user_alone(home: Path) -> None:
    assert system.token().found == "no ~/.ray/auth_token yet: a search makes one"
    assert make_token() == ""
    token = (home / ".ray/auth_token").read_text()
    assert len(token) == 64
    assert (mode(home / ".ray"), mode(home / ".ray/auth_token")) == (0o700, 0o600)
    assert make_token() == ""
    assert (home / ".ray/auth_token").read_text() == token
    assert system.token().level == "ok"


def test_one_that_is_open_is_closed_with_a_notice(home: Path) -> None:
    """As Ray makes it."""
    (home / ".ray").mkdir(mode=0o775)
    (home / ".ray/auth_token").write_text("x")
    found = system.token()
    assert (found.level, found.found.endswith("open to other users of this machine")) == ("warning", True)
    assert make_token().startswith(f"{home}/.ray and {home}/.ray/auth_token was open to others")
    assert (mode(home / ".ray"), mode(home / ".ray/auth_token")) == (0o700, 0o600)
    assert (home / ".ray/auth_token").read_text() == "x"
    assert make_token() == ""


def test_where_the_environment_has_the_token_no_file_is_made(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
    assert make_token() == ""
    assert not (home / ".ray").exists()


def test_sessions_are_in_a_folder_that_others_may_not_enter(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(home))
    folder = private_folder()
    assert mode(folder) == 0o700
    folder.chmod(0o777)
    assert private_folder() == folder
    assert mode(folder) == 0o700


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_folder_that_somebody_else_has_made_is_not_used(
    home: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(home))
    theirs = home / "tuner-4242"
    theirs.mkdir() if kind == "folder" else theirs.symlink_to(home)
    monkeypatch.setattr(local_cluster.os, "geteuid", lambda: 4242)  # type: ignore[attr-defined]
    folder = private_folder()
    assert folder != theirs
    assert mode(folder) == 0o700


def test_a_socket_of_a_session_has_a_short_path() -> None:
    session = "session_2026-11-22_20-52-01_123456_4194304/sockets/plasma_store.1"
    assert len(f"/tmp/tuner-{2**32 - 1}/ray/{session}") <= 103  # the shortest limit is that of macOS


def test_a_ray_that_does_not_come_up_in_time_is_the_machines_fault(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so with an Exception of no kind."""

    def late(**options: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", late)
    plan = make_plan(load_experiment(MINIMAL, []), this_machine())
    with pytest.raises(EnvironmentFailure, match=r"^Ray does not start on this machine: The current node timed out"):
        local_cluster.start_ray(plan, lambda text: None)


@pytest.mark.parametrize("stays", [True, False])
def test_the_process_for_the_agent_lives_as_long_as_its_raylet(stays: bool) -> None:
    """A raylet ends itself if the process that it started as its agent ends."""
    raylet = os.getpid() if stays else 1
    command = shlex.split(local_cluster._IDLE)
    process = subprocess.Popen(command, env={**os.environ, "RAY_RAYLET_PID": str(raylet)})
    try:
        status = process.wait(1.5 if stays else 60)
    except subprocess.TimeoutExpired:
        status = None
        process.kill()
        process.wait()
    assert status == (None if stays else 0)
