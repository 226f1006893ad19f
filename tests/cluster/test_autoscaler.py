"""Searches on a cluster that has no workers until its autoscaler starts them, and ends those that idle.

The autoscalers are Ray's own, with Ray's provider of nodes that are processes on this machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import ROOT
from tests.cluster.namespaces import Namespaces
from tuner import load_run
from tuner.runs.results import ResultSet

pytestmark = pytest.mark.cluster

HEAD_ID = "f" * 51 + "00000"
EMPTY = (
    *("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands", "rsync_filter"),
    *("head_start_ray_commands", "worker_start_ray_commands", "cluster_synced_files", "rsync_exclude"),
)
STORE = {"object_store_memory": 100_000_000}
PROVIDER = {
    "type": "external",
    "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
    "use_node_id_as_ip": True,  # all are at one address
    "disable_node_updaters": True,
    "disable_launch_config_check": True,
    "launch_multiple": True,
    "head_node_id": HEAD_ID,
}
CONFIG: dict[str, Any] = {
    "cluster_name": "fake",
    "max_workers": 2,
    "idle_timeout_minutes": 0.1,
    "upscaling_speed": 1.0,
    "provider": PROVIDER,
    "head_node_type": "ray.head.default",
    "available_node_types": {
        "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        "gpu_spot": {"resources": {"CPU": 2, "GPU": 1, **STORE}, "node_config": {}, "max_workers": 2},
    },
    **{key: {} for key in ("auth", "docker", "file_mounts")},
    "file_mounts_sync_continuously": False,
    **{key: [] for key in EMPTY},
}

START = """
set -e
ip link set lo up
mount -t tmpfs tmpfs /dev/shm
echo booted
ray start --head --num-cpus=0 --num-gpus=0 --object-store-memory=100000000 --temp-dir="$1/ray" \
  --autoscaling-config="$1/autoscaling.json" > "$1/start.log" 2>&1
exec "$0" -c "$2" "$1"
"""

SEARCH = """
import json, os, sys, threading, time
from pathlib import Path
import ray
from tuner import run
from tuner.execution import controller
from tuner.errors import TunerError

controller.KEEP_IDLE_S = 4.0
folder = Path(sys.argv[1])
seen, said = [], []

class Watch:
    def started(self, results): ...
    def retried(self, trial, failure): ...
    def ended(self, trial): ...
    def reported(self, trial, report): ...
    def finished(self, results): ...
    def tick(self):
        nodes = sum(node["Alive"] for node in ray.nodes()) - 1
        if not seen or seen[-1] != nodes:
            seen.append(nodes)

for name, experiment in json.loads((folder / "experiments.json").read_text()).items():
    seen.clear()
    said.clear()
    try:
        run(experiment, storage=folder, name=name, address="127.0.0.1:6379", listeners=[Watch()], say=said.append)
    except TunerError as error:
        said.append(f"error: {error}")
    print("FOUND", json.dumps([name, seen, said]), flush=True)
os._exit(0)
"""

TRAIN = """
import tempfile, time
from pathlib import Path
import ray
from ray import tune

def train(config):
    begun = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            begun = int(Path(folder, "step").read_text())
    for step in range(begun + 1, 5):
        time.sleep(config["first"][str(config["n"])] if step == 1 else 0.5)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step))
            metrics = {"score": config["n"], "node_": ray.get_runtime_context().get_node_id()}
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))
"""


@dataclass
class Found:
    workers: list[int]
    """How many nodes beside the head there were, in time."""
    said: list[str]
    results: ResultSet | None


EXPERIMENTS = {
    "refused": {"search_space": {"n": {"grid_search": [1, 2]}}, "resources": {"gpu": 8}},
    # of two trials the better one waits at its first rung for 40 s until the other comes there; its node does not
    "searched": {
        "search_space": {"n": {"grid_search": [1, 2]}},
        "search": {"kind": "grid"},
        "params": {"first": {"1": 40, "2": 1}},
        "scheduler": {"kind": "asha", "variant": "promotion", "max_t": 4, "grace_period": 1, "reduction_factor": 2},
        "resources": {"gpu": 1},
    },
}


def searches(folder: Path, version: str) -> dict[str, Found]:
    """Runs them, one after the other, in namespaces of their own, on a cluster of a head alone."""
    (folder / "toy.py").write_text(TRAIN)
    (folder / "autoscaling.json").write_text(json.dumps(CONFIG))
    common = {"trainable": f"{folder}/toy.py:train", "objective": {"metric": "score", "mode": "max"}}
    (folder / "experiments.json").write_text(json.dumps({n: common | own for n, own in EXPERIMENTS.items()}))
    (folder / "token").write_text("f" * 64)
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "RAY_FAKE_CLUSTER": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_enable_autoscaler_v2": "1" if version == "v2" else "0",
        "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
    }
    program = ["sh", "-c", START, sys.executable, str(folder), SEARCH]
    space = Namespaces(["--net", "--pid", "--mount", "--ipc", "--mount-proc"], program, environment)
    try:
        said, _ = space.outer.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        space.outer.kill()
        said, _ = space.outer.communicate()
    lines = [line.removeprefix("FOUND ") for line in said.decode().splitlines() if line.startswith("FOUND ")]
    assert len(lines) == len(EXPERIMENTS), said.decode()[-3000:] + (folder / "start.log").read_text()[-1000:]
    return {
        name: Found(workers, told, load_run(folder / name) if (folder / name).exists() else None)
        for name, workers, told in map(json.loads, lines)
    }


VERSIONS = "v1", "v2"


@pytest.fixture(scope="module")
def found(possible: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Found]]:
    """What each version of the autoscaler does with each search; both at once, as they mostly wait."""
    folders = [tmp_path_factory.mktemp("a") for _ in VERSIONS]  # Ray's sockets need a short path
    with ThreadPoolExecutor() as both:
        return dict(zip(VERSIONS, both.map(searches, folders, VERSIONS), strict=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_come_for_the_trials_that_wait_and_go_when_they_idle(found: Any, version: str) -> None:
    one = found[version]["searched"]
    assert one.results is not None, one.said
    (notice,) = [text for text in one.said if "waiting" in text]
    assert "no node has room for a trial (1 CPU, 1 GPU): waiting for the autoscaler to start gpu_spot" in notice
    assert any("it cannot be tried on the nodes" in text for text in one.said)
    assert one.workers[0] == 0
    assert 1 in one.workers[one.workers.index(2) :], one.workers
    assert [(trial.status, trial.steps) for trial in one.results.trials] == [("stopped", 1), ("completed", 4)]
    first = {trial.reports[0].metrics["node_"] for trial in one.results.trials}
    assert len(first) == 2
    assert not any(trial.failures for trial in one.results.trials)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_no_node_type_has_is_refused_with_what_they_have(found: Any, version: str) -> None:
    (error,) = found[version]["refused"].said
    assert "resources.gpu: can never be placed: a trial needs 8 GPU" in error
    assert "and its autoscaler may start only gpu_spot (2 CPU, 1 GPU each, at most 2)" in error
