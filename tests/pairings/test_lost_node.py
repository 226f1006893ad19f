"""A cluster whose nodes die with the trials on them, and join; and a trial that hangs on another node than ours."""

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
from tuner import load_run, run
from tuner.errors import NoUsableResult

how, folder, event, trials = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
node = cluster.add_node(num_cpus=2)
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")

class Sabotage:
    reports, back, joined, most = 0, None, None, 0
    def started(self, results):
        self.results = results
    def retried(self, trial, failure): ...
    def ended(self, trial): ...
    def finished(self, results): ...
    def reported(self, trial, report):
        self.reports += 1
        if event == "dies" and self.reports == 4:
            cluster.remove_node(node, allow_graceful=False)
            self.back = time.monotonic() + 20
        if event == "joins" and self.reports == 4:
            cluster.add_node(num_cpus=2)
            self.joined = time.monotonic()
        if self.joined and time.monotonic() < self.joined + 30:
            self.most = max(self.most, self.results.count("running"))
    def tick(self):
        if self.back and time.monotonic() > self.back:
            self.back = None
            cluster.add_node(num_cpus=2)

experiment = {
    "trainable": "tests/execution/failing_toys.py:fails",
    "params": {"marks": str(folder), "seconds": 1.5 if how == "nothing" else 0},
    "search_space": {"how": {"grid_search": [how]}, "n": {"grid_search": list(range(trials))}},
    "search": {"kind": "grid"},
    "objective": {"metric": "score", "mode": "max"},
    "resources": {"gpu": 0},
    "failures": {"retries": int(how != "nothing"), "hang_after": 20},
}
sabotage = Sabotage()
results = run(experiment, storage=folder, name="run", listeners=[sabotage], say=lambda text: None)
found = [[t.status, [r.step for r in t.reports], [f.kind for f in t.failures]] for t in results.trials]
print("FOUND", json.dumps([found, sabotage.most]), flush=True)
os._exit(0)  # Ray refuses to shut a cluster down whose driver this is
"""


def search(how: str, folder: Path, event: str = "", trials: int = 2) -> tuple[list[Any], int]:
    """Status, steps and failures of each trial, and how many ran at once within 30 s of a node's joining."""
    command = [sys.executable, "-c", SCRIPT, how, str(folder), event, str(trials)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-3000:]
    found, most = json.loads(lines[0].removeprefix("FOUND "))
    return found, most


def test_trials_of_a_node_that_dies_go_on_elsewhere_and_no_retry_is_counted(tmp_path: Path) -> None:
    found, _ = search("nothing", tmp_path, "dies")
    assert [trial[:2] for trial in found] == [["completed", [1, 2, 3, 4, 5, 6]]] * 2
    kinds = [kind for trial in found for kind in trial[2]]
    assert kinds
    assert set(kinds) == {"node lost"}


def test_a_node_that_joins_is_used(tmp_path: Path) -> None:
    found, most = search("nothing", tmp_path, "joins", trials=8)
    assert found == [["completed", [1, 2, 3, 4, 5, 6], []]] * 8
    assert most == 4


def test_a_trial_that_hangs_on_another_node_is_killed_with_its_stack(tmp_path: Path) -> None:
    found, _ = search("hang in C", tmp_path)
    assert [trial[:2] for trial in found] == [["completed", [1, 2, 3, 4, 5, 6]]] * 2
    assert sorted(len(trial[2]) for trial in found) == [0, 1]  # it happens once
    logs = [log.read_text() for log in (tmp_path / "run/ray").glob("*/output.log")]
    assert sum("in fail\n" in log for log in logs) == 1


SICK = """
import json, os, sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from tuner import load_run, run
from tuner.errors import NoUsableResult

folder, sick, dies = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "dies"
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
(folder / "sick").write_text(" ".join(node.node_id for node in nodes[:sick]))
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")

class Sabotage:
    def started(self, results): ...
    def reported(self, trial, report): ...
    def retried(self, trial, failure):
        if dies and nodes[1] in cluster.worker_nodes:
            (folder / "sick").write_text("")
            cluster.remove_node(nodes[1], allow_graceful=False)
    def ended(self, trial): ...
    def tick(self): ...
    def finished(self, results): ...

experiment = {
    "trainable": "tests/execution/failing_toys.py:on_nodes",
    "params": {"marks": str(folder), "seconds": 0.3},
    "search_space": {"n": {"grid_search": list(range(8))}},
    "search": {"kind": "grid"},
    "objective": {"metric": "score", "mode": "max"},
    "resources": {"gpu": 0},
}
said = []
try:
    results = run(experiment, storage=folder, name="run", listeners=[Sabotage()], say=said.append)
except NoUsableResult:
    results = load_run(folder / "run")
found = [[t.status, [r.metrics["node"] for r in t.reports], [f.message for f in t.failures]] for t in results.trials]
print("FOUND", json.dumps([[node.node_id for node in nodes], found, said]), flush=True)
os._exit(0)
"""


def on_nodes(folder: Path, sick: int, event: str = "") -> tuple[list[str], list[Any], list[str]]:
    """Ids of two nodes, of which the first ``sick`` fail all; status, nodes and errors of each trial; what is said."""
    command = [sys.executable, "-c", SICK, str(folder), str(sick), event]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-3000:]
    nodes, found, said = json.loads(lines[0].removeprefix("FOUND "))
    return nodes, found, said


def test_a_sick_node_gets_no_retry_and_soon_no_trial(tmp_path: Path) -> None:
    (_, healthy), found, said = on_nodes(tmp_path, sick=1)
    assert [trial[:2] for trial in found] == [["completed", [healthy] * 3]] * 8
    errors = [trial[2] for trial in found if trial[2]]
    assert errors == [["RuntimeError: the GPU is lost"]] * len(errors)
    assert 3 <= len(errors) <= 5
    (told,) = [text for text in said if "trials in a row failed on node" in text]
    assert "soon after their start (RuntimeError: the GPU is lost), and not elsewhere" in told


def test_what_fails_on_all_nodes_puts_none_aside(tmp_path: Path) -> None:
    _, found, said = on_nodes(tmp_path, sick=2)
    assert [trial[:2] for trial in found] == [["failed", []]] * 8
    assert not [text for text in said if "trials in a row" in text]


def test_a_trial_does_not_wait_for_a_node_that_dies(tmp_path: Path) -> None:
    (first, _), found, _ = on_nodes(tmp_path, sick=1, event="dies")
    assert [trial[0] for trial in found] == ["completed"] * 8
    assert found[-1][1] == [first] * 3
