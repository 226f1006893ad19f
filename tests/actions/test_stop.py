"""``stop RUN``: the process that works on a run is interrupted, that one only, and its end is waited for."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from tests.runs.test_listing import saved
from tuner.actions.stop import stop
from tuner.cli import cli
from tuner.errors import EnvironmentFailure, InputError
from tuner.runs.results import PROVENANCE, write_json
from tuner.storage.folder import RunFolder
from tuner.storage.lock import LOCK, claims_of, holder, locked

SEARCH = """
import sys, time
from tests.actions.test_stop import folder_of
from tuner.storage.lock import locked
with locked(folder_of(*sys.argv[1:])):
    try:
        print("works", flush=True)
        time.sleep(100)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
ROOT = Path(__file__).parents[2]


def folder_of(kind: str, place: str) -> RunFolder:
    if kind == "local":
        return RunFolder.at(Path(place) / "run")
    return RunFolder(SubTreeFileSystem(place, LocalFileSystem()), "run", "test://run")


@pytest.fixture(params=["local", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    folder = folder_of(request.param, str(tmp_path))
    folder.create()
    return folder


@pytest.fixture
def search(folder: RunFolder, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that works on ``folder``."""
    kind = "local" if folder.is_local else "store"
    command = [sys.executable, "-c", SEARCH, kind, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "works\n"
        yield process
        process.kill()


def test_the_process_is_interrupted_and_has_ended_when_stop_returns(
    folder: RunFolder, search: subprocess.Popen[str]
) -> None:
    said: list[str] = []
    assert stop(folder, said.append)
    assert said[0].startswith(f"process {search.pid} stops")
    assert holder(folder) is None
    assert search.communicate()[0] == "interrupted\n"
    assert not stop(folder, said.append)


def test_a_process_of_another_host_is_left_alone(folder: RunFolder) -> None:
    """It has the number of a process of this host."""
    with locked(folder):
        claim(folder, pid=os.getpid(), host="elsewhere")
        with pytest.raises(InputError) as caught:
            stop(folder, print)
    here = socket.gethostname()
    assert f"process {os.getpid()} on elsewhere works on this run, and this is {here}: on elsewhere," in str(
        caught.value
    )
    assert str(caught.value).endswith("python -m tuner stop " + folder.quoted)


def test_a_process_that_has_only_the_number_is_left_alone(folder: RunFolder) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other, locked(folder):
        claim(folder, pid=other.pid, host=socket.gethostname(), time=time.time() - 1000)
        with pytest.raises(EnvironmentFailure, match=f"process {other.pid} on this host .* does not hold the lock"):
            stop(folder, print)
        other.communicate(b"\n")
        assert other.returncode == 0


def test_a_process_that_is_not_there(folder: RunFolder) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    with locked(folder):
        claim(folder, pid=ended.pid, host=socket.gethostname())
        with pytest.raises(
            EnvironmentFailure, match=f"process {ended.pid}, which works on this run, is not to be found"
        ):
            stop(folder, print)


@pytest.mark.parametrize(
    "content", [{}, {"pid": -1, "host": "h"}, {"pid": True, "host": "h"}, {"pid": "1", "host": "h"}]
)
def test_a_lock_that_names_no_process(folder: RunFolder, content: dict[str, object]) -> None:
    """A negative number would be a whole group of processes."""
    with locked(folder):
        claim(folder, **content)
        with pytest.raises(EnvironmentFailure, match=r"run\.lock does not name the process"):
            stop(folder, print)


def claim(folder: RunFolder, **content: object) -> None:
    """Whoever has the lock is now these."""
    root = folder.path if folder.is_local else folder.filesystem.base_path + folder.path
    held = Path(root) / LOCK
    if not folder.is_local:
        (held,) = (path for path in (Path(root) / claims_of(LOCK)).iterdir() if not path.name.startswith("."))
    held.write_text(json.dumps({"owner": "o", "time": time.time()} | content))


# --- the command ---


def asked(*words: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(cli, ["stop", *words])


def test_an_ended_run_has_nothing_to_stop(tmp_path: Path) -> None:
    saved(tmp_path / "q", "2026-01-01T10:00:00+0000", interrupted=False)
    done = asked("q", "--storage", str(tmp_path))
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"{tmp_path}/q: nothing to stop: it is finished: the search came to its end\n"
    done = asked(str(tmp_path / "q"), "--json")
    assert json.loads(done.stdout) == {"run": f"{tmp_path}/q", "was_running": False, "state": "finished"}


def test_an_unknown_run_names_both_kinds(tmp_path: Path) -> None:
    done = asked("q", "--storage", str(tmp_path))
    assert isinstance(done.exception, InputError)
    places = "--cluster FILE, --jobs-address URL or --service URL"
    assert re.search(f"no run 'q' .*; a search elsewhere: add {places}", str(done.exception))


def test_a_job_where_a_cluster_is_named(tmp_path: Path) -> None:
    saved(tmp_path / "q", "2026-01-01T10:00:00+0000", interrupted=False)
    for words, environment in ((["--cluster", "x.yaml"], {}), ([], {"TUNER_CLUSTER": "x.yaml"})):
        done = asked("q", "--storage", str(tmp_path), *words, **environment)
        assert "--cluster x.yaml: there is no such file" in str(done.exception)


def test_a_run_of_this_machine_comes_before_the_cluster_of_the_environment(tmp_path: Path) -> None:
    saved(tmp_path / "q", "2026-01-01T10:00:00+0000", interrupted=False)
    folder = RunFolder.at(tmp_path / "q")
    with locked(folder):
        claim(folder, pid=1, host="elsewhere")
        done = asked("q", "--storage", str(tmp_path), TUNER_CLUSTER="x.yaml")
    assert "process 1 on elsewhere works on this run" in str(done.exception)


def test_a_silent_run_recommends_stop(tmp_path: Path) -> None:
    saved(tmp_path / "q", "2026-01-01T10:00:00+0000", ())
    folder = RunFolder.at(tmp_path / "q")
    write_json(folder, PROVENANCE, {"started": "2026-01-01", "notices": []})
    with locked(folder):
        claim(folder, pid=4711, host="h", time=0.0)
        done = CliRunner().invoke(cli, ["status", str(tmp_path / "q"), "--json"], catch_exceptions=False)
    assert f"python -m tuner stop {tmp_path}/q" in json.loads(done.stdout)["run"]
