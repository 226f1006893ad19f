"""What the machine does to a search: Ray's processes die, the disk fills up or turns read-only, the clock jumps."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import disks
from tests.disks import needs_root
from tests.faults.search import EPOCHS, TRIAL, Search, check_complete, check_never_taken_back, experiment, outcome

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("program", ["raylet", "gcs_server"])
def test_rays_processes_die(tmp_path: Path, whole: Any, program: str) -> None:
    """The search says so, where Ray itself would wait for a minute, and can be resumed."""
    search = Search(tmp_path).start(experiment(seconds=0.2))
    search.until(lambda: search.reports() >= 6)
    (pid,) = search.children(program)
    os.kill(pid, signal.SIGKILL)
    status, said = search.wait()
    assert status == 4, said
    assert f"Ray's process {program} died" in said
    assert f"resume {search.run}" in said
    assert "Traceback" not in said
    search.finish()
    check_complete(search.run)
    assert outcome(search.run) == whole("tpe")


def _trains(search: Search) -> bool:
    """Whether a trial is on its way to its next report."""
    last = search.events()[-1]
    return search.reports() >= 6 and last["what"] == "reported" and last["decision"] == "continue"


def test_a_trials_process_dies(tmp_path: Path, whole: Any) -> None:
    search = Search(tmp_path).start(experiment(seconds=0.3))
    search.until(lambda: bool(search.events()) and _trains(search))
    (pid,) = search.children(*TRIAL)
    os.kill(pid, signal.SIGKILL)
    status, said = search.wait()
    assert status == 0, said
    check_complete(search.run)
    assert outcome(search.run) == whole("tpe")
    (failed,) = search.events("failed attempt")
    assert (failed["kind"], failed["retried"]) == ("process died", True)
    check_never_taken_back(search)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small_disk(tmp_path) as disk:
        yield disk


def spec(**keys: Any) -> dict[str, Any]:
    """A search with checkpoints of 200 kB, which writes to the disk whatever is free."""
    params = {"epochs": EPOCHS, "seconds": 0.1, "bytes": 200_000}
    limits = {"checkpoints": {"keep_trials": 8, "min_free_gib": 0}, "failures": {"storage_patience": "3s"}}
    return experiment(params=params, **limits, **keys)


@needs_root
def test_the_disk_is_full(tmp_path: Path, small_disk: Path) -> None:
    search = Search(tmp_path, small_disk / "runs").start(spec())
    search.until(lambda: search.reports() >= 6)
    ballast = disks.fill(small_disk)
    status, said = search.wait()
    assert status == 4, said
    assert "cannot be written: " in said
    assert "No space left on device" in said
    assert "Traceback" not in said
    ballast.unlink()
    search.finish()
    check_complete(search.run)


@needs_root
def test_a_disk_that_is_full_for_a_while_costs_nothing(tmp_path: Path, small_disk: Path) -> None:
    search = Search(tmp_path, small_disk / "runs").start({**spec(), "failures": {"storage_patience": "5m"}})
    search.until(lambda: search.reports() >= 6)
    ballast = disks.fill(small_disk)
    search.until(lambda: "cannot be used" in search._said.read_text())
    ballast.unlink()
    status, said = search.wait()
    assert status == 0, said
    assert "can be used again" in said
    check_complete(search.run)


@needs_root
def test_the_storage_turns_read_only(tmp_path: Path, small_disk: Path) -> None:
    """As the kernel does it after an error of the disk."""
    search = Search(tmp_path, small_disk / "runs").start(spec())
    search.until(lambda: search.reports() >= 6)
    subprocess.run(["mount", "-o", "remount,abort", str(small_disk)], check=True)
    status, said = search.wait()
    assert status == 4, said
    assert "Read-only file system" in said
    assert "Traceback" not in said
    subprocess.run(["umount", "-l", str(small_disk)], check=True)
    subprocess.run(["e2fsck", "-p", str(tmp_path / "disk.img")], check=False)
    subprocess.run(["mount", "-o", "loop", str(tmp_path / "disk.img"), str(small_disk)], check=True)
    search.finish()
    check_complete(search.run)


def test_the_clock_jumps_by_an_hour(tmp_path: Path, whole: Any) -> None:
    """In the driver, where budgets and silence are counted, and in the trials' processes; and back again."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\n"
        "real, jump = time.time, os.environ['JUMP']\n"
        "def jumping():\n"
        "    try:\n"
        "        return real() + float(open(jump).read())\n"
        "    except (OSError, ValueError):\n"
        "        return real()\n"
        "time.time = jumping\n"
    )
    jump = tmp_path / "jump"
    search = Search(tmp_path, environment={"JUMP": str(jump)})
    search.environment["PYTHONPATH"] += f":{tmp_path}"
    limits: dict[str, Any] = {"budget": {"trials": 8, "wall_clock": "30m"}, "failures": {"hang_after": "5m"}}
    search.start(experiment(seconds=0.1, **limits))
    search.until(lambda: search.reports() >= 6)
    jump.write_text("3600")
    search.until(lambda: search.reports() >= 14)
    jump.write_text("-3600")
    status, said = search.wait()
    assert status == 0, said
    check_complete(search.run)
    assert outcome(search.run) == whole("tpe")
    assert search.events("failed attempt") == []
    assert search.events("left")[-1]["elapsed"] < 1800
