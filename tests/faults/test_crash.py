"""The command line when a search ends by what nobody foresaw: one line, a run that is interrupted, and `resume`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.search import ROOT, TRIALS, Search, check_complete, experiment

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

SEARCHER = """
import random
from pathlib import Path
from ray.tune.search import Searcher

class Mine(Searcher):
    def __init__(self):
        super().__init__()
        self.draw, self.count = random.Random(1), 0
    def set_search_properties(self, metric, mode, config, **spec):
        return True
    def suggest(self, trial_id):
        self.count += 1
        if self.count == 5 and not Path("mended").exists():
            raise KeyError("the fifth")
        return {"x": self.draw.random()}
    def on_trial_complete(self, trial_id, result=None, error=False): ...
    def save(self, path): ...
    def restore(self, path): ...
"""


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
    place = f"({tmp_path}/mine.py, line 15); traceback: {search.run}/run.log"
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
