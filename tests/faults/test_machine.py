"""What the machine does to a search: Ray's processes die, the disk fills up or turns read-only, the clock jumps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.search import EPOCHS, Search, check_complete, experiment, outcome

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

needs_root = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0, reason="mounts a file system: Linux, root"
)


@pytest.mark.parametrize("program", ["raylet", "gcs_server"])
def test_rays_processes_die(tmp_path: Path, program: str) -> None:
    """The search comes to its end without them, or says so and can be resumed."""
    search = Search(tmp_path).start(experiment(seconds=0.2))
    search.until(lambda: search.reports() >= 6)
    (pid,) = search.children(program)
    os.kill(pid, signal.SIGKILL)
    status, said = search.wait(200)
    if status != 0:
        assert status == 4, said
        assert f"resume {search.run}" in said
        assert "Traceback" not in said
        search.finish()
    check_complete(search.run)


def test_a_trials_process_dies(tmp_path: Path) -> None:
    search = Search(tmp_path).start(experiment(seconds=0.2))
    search.until(lambda: search.reports() >= 6)
    (pid,) = search.children("ray::Trial")
    os.kill(pid, signal.SIGKILL)
    status, said = search.wait()
    assert status == 0, said
    check_complete(search.run)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a file system of a few MiB, again with other options."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options: str) -> Path:
        again = ["-o", f"remount,{options}"] if place.is_mount() else ["-o", options]
        subprocess.run(["mount", "-t", "tmpfs", *again, "tmpfs", str(place)], check=True)
        return place

    yield mount
    if place.is_mount():
        subprocess.run(["umount", "-l", str(place)], check=True)


@needs_root
@pytest.mark.parametrize(("broken", "mended"), [("size=4m", "size=64m"), ("ro", "rw")], ids=["full", "read-only"])
def test_the_storage_stops_taking_writes(
    tmp_path: Path, small_disk: Callable[[str], Path], broken: str, mended: str
) -> None:
    storage = small_disk("size=64m")
    keys = {"params": {"epochs": EPOCHS, "seconds": 0.1, "bytes": 200_000}}
    search = Search(tmp_path, storage / "runs").start(experiment(**keys))
    search.until(lambda: search.reports() >= 6)
    small_disk(broken)
    status, said = search.wait()
    assert status in (3, 4), said
    assert "Traceback" not in said
    small_disk(mended)
    search.finish()
    check_complete(search.run)


def test_the_clock_jumps_by_an_hour(tmp_path: Path) -> None:
    """In the driver, where budgets are counted; and back again."""
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
    search.start(experiment(seconds=0.1, budget={"trials": 8, "wall_clock": "30m"}))
    search.until(lambda: search.reports() >= 6)
    jump.write_text("3600")
    search.until(lambda: search.reports() >= 14)
    jump.write_text("-3600")
    status, said = search.wait()
    assert status == 0, said
    check_complete(search.run)
    assert [len(reports) for *_, reports, _ in outcome(search.run)]
