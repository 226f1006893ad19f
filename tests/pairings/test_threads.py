"""A trial on a cluster uses as many threads as it has CPUs, whatever the cluster's environment says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.pairings.own_cluster import found_by

pytestmark = pytest.mark.pairings

CASES = {"half": {"cpu": 0.5}, "two": {"cpu": 2}, "group": {"cpu": 2, "workers": 2}}
WANTED = {"half": 1, "two": 2, "group": 2}

SCRIPT = """
import json, os, sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from tuner import run

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
cluster.add_node(num_cpus=4)
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
found = {}
for name, resources in json.loads(sys.argv[2]).items():
    experiment = {
        "trainable": "tests/pairings/thread_toy.py:train",
        "search_space": {"n": {"grid_search": [1, 2]}},
        "search": {"kind": "grid"},
        "objective": {"metric": "score", "mode": "max"},
        "resources": {"gpu": 0, "max_concurrent_trials": 1, **resources},
    }
    results = run(experiment, storage=Path(sys.argv[1]), name=name, say=lambda text: None)
    found[name] = [json.loads(trial.reports[0].metrics["seen"]) for trial in results.trials]
print("FOUND", json.dumps(found), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(("cluster_has", "cases"), [(None, ["two"]), ("8", list(CASES))])
def test_threads_are_as_many_as_cpus(tmp_path: Path, cluster_has: str | None, cases: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    if cluster_has:
        environment["OMP_NUM_THREADS"] = cluster_has
    chosen = json.dumps({name: CASES[name] for name in cases})
    (found,) = found_by(SCRIPT, str(tmp_path), chosen, environment=environment)
    assert list(found) == cases
    for name, trials in found.items():
        assert [len(ranks) for ranks in trials] == [CASES[name].get("workers", 1)] * 2  # type: ignore[attr-defined]
        for seen in (rank for ranks in trials for rank in ranks):
            told = {key: seen[key] for key in ("environment", "torch", "numpy")}
            assert told == dict.fromkeys(told, WANTED[name]), (name, found)
        assert trials[0][0]["process"] == trials[1][0]["process"], "the second trial ran in another process"
