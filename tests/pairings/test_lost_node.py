"""A cluster of two nodes of which one dies with the trials on it; and a trial that hangs on another node than ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.pairings, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]

SCRIPT = """
import json, os, sys, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from tuner import run

how, folder = sys.argv[1], Path(sys.argv[2])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
node = cluster.add_node(num_cpus=2)
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")

class Sabotage:
    reports, back = 0, None
    def started(self, results): ...
    def retried(self, trial, failure): ...
    def ended(self, trial): ...
    def finished(self, results): ...
    def reported(self, trial, report):
        self.reports += 1
        if how == "nothing" and self.reports == 4:
            cluster.remove_node(node, allow_graceful=False)
            self.back = time.monotonic() + 20
    def tick(self):
        if self.back and time.monotonic() > self.back:
            self.back = None
            cluster.add_node(num_cpus=2)

experiment = {
    "trainable": "tests/engine/failing_toys.py:fails",
    "params": {"marks": str(folder), "seconds": 1.5 if how == "nothing" else 0},
    "search_space": {"how": {"grid_search": [how]}, "n": {"grid_search": [1, 2]}},
    "search": {"kind": "grid"},
    "objective": {"metric": "score", "mode": "max"},
    "resources": {"gpu": 0},
    "failures": {"retries": int(how != "nothing"), "hang_after": 20},
}
results = run(experiment, storage=folder, name="run", listeners=[Sabotage()], say=lambda text: None)
found = [[t.status, [r.step for r in t.reports], [f.kind for f in t.failures]] for t in results.trials]
print("FOUND", json.dumps(found), flush=True)
os._exit(0)  # Ray refuses to shut a cluster down whose driver this is
"""


def trials(how: str, folder: Path) -> list[Any]:
    command = [sys.executable, "-c", SCRIPT, how, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-3000:]
    found: list[Any] = json.loads(lines[0].removeprefix("FOUND "))
    return found


def test_trials_of_a_node_that_dies_go_on_elsewhere_and_no_retry_is_counted(tmp_path: Path) -> None:
    found = trials("nothing", tmp_path)
    assert [trial[:2] for trial in found] == [["completed", [1, 2, 3, 4, 5, 6]]] * 2
    kinds = [kind for trial in found for kind in trial[2]]
    assert kinds
    assert set(kinds) == {"node lost"}


def test_a_trial_that_hangs_on_another_node_is_killed_with_its_stack(tmp_path: Path) -> None:
    found = trials("hang in C", tmp_path)
    assert [trial[:2] for trial in found] == [["completed", [1, 2, 3, 4, 5, 6]]] * 2
    assert sorted(len(trial[2]) for trial in found) == [0, 1]  # it happens once
    logs = [log.read_text() for log in (tmp_path / "run/ray").glob("*/output.log")]
    assert sum("in fail\n" in log for log in logs) == 1
