"""A cluster with a node on which all trials fail."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pairings.own_cluster import found_by

pytestmark = [pytest.mark.pairings, pytest.mark.timeout(600)]

SCRIPT = """
import json, os, sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from tuner import load_run, run
from tuner.errors import NoUsableResult

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")

class Sabotage:
    def started(self, results): ...
    def reported(self, trial, report): ...
    def retried(self, trial, failure):
        if event == "dies" and nodes[1] in cluster.worker_nodes:
            (folder / "sick").write_text("")
            cluster.remove_node(nodes[1], allow_graceful=False)
    def ended(self, trial): ...
    def tick(self): ...
    def finished(self, results): ...

for event, sick, trials in [("one sick", 1, 8), ("all sick", 2, 5), ("dies", 1, 5)]:
    folder = Path(sys.argv[1], event)
    folder.mkdir()
    (folder / "sick").write_text(" ".join(node.node_id for node in nodes[:sick]))
    experiment = {
        "trainable": "tests/execution/failing_toys.py:on_nodes",
        "params": {"marks": str(folder), "seconds": 0.3},
        "search_space": {"n": {"grid_search": list(range(trials))}},
        "search": {"kind": "grid"},
        "objective": {"metric": "score", "mode": "max"},
        "resources": {"gpu": 0},
        "failures": {"stop_after": None},
    }
    said = []
    try:
        results = run(experiment, storage=folder, name="run", listeners=[Sabotage()], say=said.append)
    except NoUsableResult:
        results = load_run(folder / "run")
    found = [
        [trial.status, [report.metrics["node"] for report in trial.reports], [why.message for why in trial.failures]]
        for trial in results.trials
    ]
    print("FOUND", json.dumps([event, [node.node_id for node in nodes], found, said]), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def on_nodes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[str], list[Any], list[str]]]:
    """Ids of two nodes; status, nodes and errors of each trial; what ``run`` printed."""
    found = found_by(SCRIPT, str(tmp_path_factory.mktemp("searches")))
    return {event: (nodes, trials, said) for event, nodes, trials, said in found}


def test_a_sick_node_gets_no_retry_and_soon_no_trial(on_nodes: dict[str, Any]) -> None:
    (_, healthy), found, said = on_nodes["one sick"]
    assert [trial[:2] for trial in found] == [["completed", [healthy] * 3]] * 8
    errors = [trial[2] for trial in found if trial[2]]
    assert errors == [["RuntimeError: the GPU is lost"]] * len(errors)
    assert 3 <= len(errors) <= 5
    (told,) = [text for text in said if "trials in a row failed on node" in text]
    assert "soon after their start (RuntimeError: the GPU is lost), and not elsewhere" in told


def test_what_fails_on_all_nodes_puts_none_aside(on_nodes: dict[str, Any]) -> None:
    _, found, said = on_nodes["all sick"]
    assert [trial[:2] for trial in found] == [["failed", []]] * 5
    assert not [text for text in said if "trials in a row" in text]


def test_a_trial_does_not_wait_for_a_node_that_dies(on_nodes: dict[str, Any]) -> None:
    (first, _), found, _ = on_nodes["dies"]
    assert [trial[0] for trial in found] == ["completed"] * 5
    assert found[-1][1] == [first] * 3
