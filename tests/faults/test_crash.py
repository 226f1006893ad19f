"""The command line when a search ends by what nobody foresaw: one line, a run that is interrupted, and `resume`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.search import ROOT, TRIALS, Search, check_complete, experiment
from tests.raising import SEARCHER

pytestmark = pytest.mark.faults


def listed(search: Search) -> dict[str, str]:
    command = [sys.executable, "-m", "tuner", "list", "--storage", str(search.storage), "--json"]
    (row,) = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    return {name: row[name] for name in ("state", "trials", "note")}


def test_a_searcher_that_raises_then_a_ray_that_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SEARCHER)
    theirs = {"kind": "ray", "class_path": "mine.py:Mine"}
    search = Search(tmp_path).start(experiment() | {"search": theirs})
    status, said = search.wait()
    reason = "searcher Mine (search.class_path) raised KeyError: 'the fifth'"
    place = f"({tmp_path}/mine.py, line 12); traceback: {search.run}/run.log"
    assert status == 1, said
    assert f"error: {reason} {place}\n" in said
    assert "Traceback" not in said
    assert "KeyError: 'the fifth'\n" in (search.run / "run.log").read_text()
    assert listed(search) == {
        "state": "interrupted",
        "trials": f"4/{TRIALS}",
        "note": f"interrupted: {reason} {place}",
    }

    (tmp_path / "mended").touch()
    search.environment["RAY_TMPDIR"] = f"{tmp_path}/{'long' * 30}"  # for the path of a socket
    status, said = search.start().wait()
    assert status == 4, said
    assert "error: Ray does not start on this machine: " in said
    assert f"python -m tuner resume {search.run}" in said
    assert "Traceback" not in said
    row = listed(search)
    assert (row["state"], row["trials"]) == ("interrupted", f"4/{TRIALS}")
    assert row["note"].startswith("interrupted: Ray does not start")

    del search.environment["RAY_TMPDIR"]
    check_complete(search.finish().run)
