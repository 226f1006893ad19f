"""Data is fetched once on a node, whatever becomes of those who fetch it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tuner.training.fetching import fetched

REPOSITORY = Path(__file__).parents[2]

TRIAL = """
import sys, time
from pathlib import Path
from tuner.training.fetching import fetched

folder, seconds = Path(sys.argv[1]), float(sys.argv[2])

def fetch(empty):
    assert not any(empty.iterdir())
    (empty / "first").write_text("1")
    print("fetching", flush=True)
    time.sleep(seconds)
    (empty / "second").write_text("2")

data = fetched(folder, fetch)
print(*sorted(path.name for path in data.iterdir()), flush=True)
"""


def trial(folder: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TRIAL, str(folder), str(seconds)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_of_trials_that_start_together_one_fetches(tmp_path: Path) -> None:
    trials = [trial(tmp_path / "data", 0.5) for _ in range(4)]
    said = sorted(process.communicate(timeout=60)[0] for process in trials)
    assert said == ["fetching\nfirst second\n", *["first second\n"] * 3]


def test_a_trial_that_is_killed_in_mid_fetch_leaves_no_half_data(tmp_path: Path) -> None:
    killed = trial(tmp_path / "data", 600)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "fetching\n"
    waiting = [trial(tmp_path / "data", 0) for _ in range(3)]
    with pytest.raises(subprocess.TimeoutExpired):
        waiting[0].communicate(timeout=2)
    assert names(tmp_path) == {"data.lock", ".data.new"}
    killed.kill()
    said = sorted(process.communicate(timeout=60)[0] for process in waiting)
    killed.communicate()
    assert said == ["fetching\nfirst second\n", *["first second\n"] * 2]
    assert names(tmp_path) == {"data.lock", "data"}


def test_what_a_fetch_raises_is_raised_and_the_next_one_tries(tmp_path: Path) -> None:
    def broken(empty: Path) -> None:
        (empty / "half").touch()
        raise OSError("no route to host")

    with pytest.raises(OSError, match="no route"):
        fetched(tmp_path / "data", broken)
    assert names(tmp_path) <= {"data.lock"}
    data = fetched(str(tmp_path / "data"), lambda empty: (empty / "whole").touch())
    assert names(data) == {"whole"}


def test_what_has_a_problem_is_fetched_again(tmp_path: Path) -> None:
    def problem(folder: Path) -> str:
        return "" if (folder / "new").exists() else "it is of last year"

    fetched(tmp_path / "data", lambda empty: (empty / "old").touch())
    for _ in range(2):
        fetched(tmp_path / "data", lambda empty: (empty / "new").touch(), problem)
    assert names(tmp_path / "data") == {"new"}
