"""A cluster whose nodes die with the trials on them, and join; and a trial that hangs on another node than ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pairings.own_cluster import found_by

pytestmark = [pytest.mark.pairings, pytest.mark.timeout(600)]

SCRIPT = """
import json, os, sys, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from tuner import load_run, run
from tuner.errors import NoUsableResult

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
node = cluster.add_node(num_cpus=2)
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")

class Sabotage:
    reports, back, joined, most = 0, None, None, 0
    def __init__(self, event):
        self.event = event
    def started(self, results):
        self.results = results
    def retried(self, trial, failure): ...
    def ended(self, trial): ...
    def finished(self, results): ...
    def reported(self, trial, report):
        self.reports += 1
        if self.event == "dies" and self.reports == 4:
            cluster.remove_node(node, allow_graceful=False)
            self.back = time.monotonic() + 10
        if self.event == "joins" and self.reports == 4:
            cluster.add_node(num_cpus=2)
            self.joined = time.monotonic()
        if self.joined and time.monotonic() < self.joined + 30:
            self.most = max(self.most, self.results.count("running"))
    def tick(self):
        if self.back and time.monotonic() > self.back:
            self.back = None
            cluster.add_node(num_cpus=2)

for event, how, trials in [("dies", "nothing", 2), ("hangs", "hang in C", 2), ("joins", "nothing", 8)]:
    folder = Path(sys.argv[1], event)
    folder.mkdir()
    experiment = {
        "trainable": "tests/execution/failing_toys.py:fails",
        "params": {"marks": str(folder), "seconds": 1.5 if how == "nothing" else 0},
        "search_space": {"how": {"grid_search": [how]}, "n": {"grid_search": list(range(trials))}},
        "search": {"kind": "grid"},
        "objective": {"metric": "score", "mode": "max"},
        "resources": {"gpu": 0},
        "failures": {"retries": int(how != "nothing"), "hang_after": 20},
    }
    sabotage = Sabotage(event)
    results = run(experiment, storage=folder, name="run", listeners=[sabotage], say=lambda text: None)
    found = [[t.status, [r.step for r in t.reports], [f.kind for f in t.failures]] for t in results.trials]
    print("FOUND", json.dumps([event, found, sabotage.most]), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("searches")


@pytest.fixture(scope="module")
def searches(folder: Path) -> dict[str, tuple[list[Any], int]]:
    """Status, steps and failures of each trial, and how many ran at once within 30 s of a node's joining."""
    return {event: (trials, most) for event, trials, most in found_by(SCRIPT, str(folder))}


def test_trials_of_a_node_that_dies_go_on_elsewhere_and_no_retry_is_counted(searches: dict[str, Any]) -> None:
    found, _ = searches["dies"]
    assert [trial[:2] for trial in found] == [["completed", [1, 2, 3, 4, 5, 6]]] * 2
    kinds = [kind for trial in found for kind in trial[2]]
    assert kinds
    assert set(kinds) == {"node lost"}


def test_a_node_that_joins_is_used(searches: dict[str, Any]) -> None:
    found, most = searches["joins"]
    assert found == [["completed", [1, 2, 3, 4, 5, 6], []]] * 8
    assert most == 4


def test_a_trial_that_hangs_on_another_node_is_killed_with_its_stack(folder: Path, searches: dict[str, Any]) -> None:
    found, _ = searches["hangs"]
    assert [trial[:2] for trial in found] == [["completed", [1, 2, 3, 4, 5, 6]]] * 2
    assert sorted(len(trial[2]) for trial in found) == [0, 1]  # it happens once
    logs = [log.read_text() for log in (folder / "hangs/run/ray").glob("*/output.log")]
    assert sum("in fail\n" in log for log in logs) == 1
