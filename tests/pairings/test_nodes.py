"""A cluster whose nodes are sick or die; and a trial that hangs on another node than ours.

Nodes that join or are cut off: tests/cluster.
"""

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
from tuner import run

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")

class Sabotage:
    reports, back = 0, None
    def started(self, results): ...
    def ended(self, trial): ...
    def finished(self, results): ...
    def retried(self, trial, failure):
        if event == "the healthy one dies" and nodes[1] in cluster.worker_nodes:
            (folder / "sick").write_text("")
            cluster.remove_node(nodes[1], allow_graceful=False)
    def reported(self, trial, report):
        self.reports += 1
        if event == "the last one dies" and self.reports == 4:
            cluster.remove_node(nodes[0], allow_graceful=False)
            self.back = time.monotonic() + 10
    def tick(self):
        if self.back and time.monotonic() > self.back:
            self.back = None
            cluster.add_node(num_cpus=2)

def on_nodes(trials):
    return {"trainable": "tests/execution/failing_toys.py:on_nodes", "params": {"seconds": 0.3},
            "search_space": {"n": {"grid_search": list(range(trials))}}, "failures": {"stop_after": None}}

def fails(how, seconds, **failures):
    space = {"how": {"grid_search": [how]}, "n": {"grid_search": [0, 1]}}
    return {"trainable": "tests/execution/failing_toys.py:fails", "params": {"seconds": seconds},
            "search_space": space, "failures": failures}

searches = {
    "one is sick": on_nodes(8),
    "the healthy one dies": on_nodes(5),
    "a trial hangs": fails("hang in C", 0, retries=1, hang_after=20),
    "the last one dies": fails("nothing", 1, retries=0),
}
for event, experiment in searches.items():
    folder = Path(sys.argv[1], event)
    folder.mkdir()
    (folder / "sick").write_text(nodes[0].node_id)
    experiment["params"]["marks"] = str(folder)
    common = {"search": {"kind": "grid"}, "objective": {"metric": "score", "mode": "max"}, "resources": {"gpu": 0}}
    said = []
    results = run(experiment | common, storage=folder, name="run", listeners=[Sabotage()], say=said.append)
    found = [
        [t.status, [[r.step, r.metrics.get("node")] for r in t.reports], [[f.kind, f.message] for f in t.failures]]
        for t in results.trials
    ]
    print("FOUND", json.dumps([event, [node.node_id for node in nodes], found, said]), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("searches")


@pytest.fixture(scope="module")
def searches(folder: Path) -> dict[str, tuple[list[str], list[Any], list[str]]]:
    """Ids of two nodes; status, reports and failures of each trial; what ``run`` printed."""
    return {event: tuple(found) for event, *found in found_by(SCRIPT, str(folder))}


def test_a_sick_node_gets_no_retry_and_soon_no_trial(searches: dict[str, Any]) -> None:
    (_, healthy), found, said = searches["one is sick"]
    assert [trial[:2] for trial in found] == [["completed", [[step, healthy] for step in (1, 2, 3)]]] * 8
    errors = [trial[2] for trial in found if trial[2]]
    assert errors == [[["GPU", "RuntimeError: the GPU is lost"]]] * len(errors)
    assert 3 <= len(errors) <= 5
    (told,) = [text for text in said if "trials in a row failed on node" in text]
    assert "soon after their start (RuntimeError: the GPU is lost), and not elsewhere" in told


def test_a_trial_does_not_wait_for_a_node_that_dies(searches: dict[str, Any]) -> None:
    (first, _), found, _ = searches["the healthy one dies"]
    assert [trial[0] for trial in found] == ["completed"] * 5
    assert found[-1][1] == [[step, first] for step in (1, 2, 3)]


def test_a_trial_that_hangs_on_another_node_is_killed_with_its_stack(folder: Path, searches: dict[str, Any]) -> None:
    _, found, _ = searches["a trial hangs"]
    assert [(trial[0], len(trial[1])) for trial in found] == [("completed", 6)] * 2
    assert sorted(len(trial[2]) for trial in found) == [0, 1]  # it happens once
    logs = [log.read_text() for log in (folder / "a trial hangs/run/ray").glob("*/output.log")]
    assert sum("in fail\n" in log for log in logs) == 1


def test_trials_wait_for_another_node_when_the_last_one_dies_and_no_retry_is_counted(searches: dict[str, Any]) -> None:
    _, found, _ = searches["the last one dies"]
    assert [(trial[0], [step for step, _ in trial[1]]) for trial in found] == [("completed", [1, 2, 3, 4, 5, 6])] * 2
    kinds = [kind for trial in found for kind, _ in trial[2]]
    assert kinds
    assert set(kinds) == {"node lost"}
