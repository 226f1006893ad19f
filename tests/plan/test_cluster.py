"""How many trials fit on a cluster, and what this machine has."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tuner.plan import cluster as machine
from tuner.plan.cluster import Autoscaler, Cluster, Node, NodeType, format_resources, mig_slices, this_machine

GIB = 2.0**30


def cluster(*resources: dict[str, float]) -> Cluster:
    return Cluster(tuple(Node(f"n{i}", r) for i, r in enumerate(resources)))


@pytest.mark.parametrize(
    ("nodes", "request_", "slots"),
    [
        ([{"CPU": 4}], {"CPU": 1}, 4),
        ([{"CPU": 4}], {"CPU": 3}, 1),
        ([{"CPU": 4}], {"CPU": 5}, 0),
        ([{"CPU": 3}, {"CPU": 3}], {"CPU": 2}, 2),
        ([{"CPU": 1}], {"CPU": 0.1}, 10),
        ([{"CPU": 2}], {"CPU": 0.3}, 6),
        ([{"CPU": 8, "GPU": 2}], {"CPU": 1, "GPU": 1}, 2),
        ([{"CPU": 8, "GPU": 2}], {"CPU": 1, "GPU": 2}, 1),
        ([{"CPU": 8, "GPU": 1}], {"CPU": 1, "GPU": 0.25}, 4),
        ([{"CPU": 8, "GPU": 2}], {"CPU": 1, "GPU": 0.3}, 6),  # 3 on each: no trial spans two GPUs
        ([{"CPU": 8, "GPU": 2}], {"CPU": 1, "GPU": 0.6}, 2),
        ([{"CPU": 32, "GPU": 1}], {"CPU": 1, "GPU": 0.1}, 10),
        ([{"CPU": 32, "GPU": 1}], {"CPU": 1, "GPU": 1 / 3}, 3),
        ([{"CPU": 1, "GPU": 4}], {"CPU": 1, "GPU": 0.25}, 1),
        ([{"CPU": 16}, {"CPU": 4, "GPU": 1}], {"CPU": 1, "GPU": 0.5}, 2),
        ([{"CPU": 16}, {"CPU": 4, "GPU": 1}], {"CPU": 1}, 20),
        ([{"CPU": 16}, {"CPU": 1, "GPU": 8}], {"CPU": 2, "GPU": 1}, 0),
        ([{"CPU": 8, "memory": 10 * GIB}], {"CPU": 1, "memory": 4 * GIB}, 2),
        ([{"CPU": 8, "tpu": 2}, {"CPU": 8}], {"CPU": 1, "tpu": 1}, 2),
        ([], {"CPU": 1}, 0),
    ],
)
def test_slots(nodes: list[dict[str, float]], request_: dict[str, float], slots: int) -> None:
    assert cluster(*nodes).slots(request_) == slots


HEAD = Node("head", {"CPU": 0.0}, is_head=True)
GPU = NodeType("gpu", {"CPU": 4.0, "GPU": 1.0}, 8)
BIG = NodeType("big", {"CPU": 16.0, "GPU": 4.0}, 2)
ONE_GPU = {"CPU": 1.0, "GPU": 1.0}


@pytest.mark.parametrize(
    ("types", "most", "there", "request_", "workers", "ahead", "full"),
    [
        ([GPU], 8, 0, ONE_GPU, 1, 5, 8),  # five nodes at first, as Ray's autoscaler itself
        ([GPU], 8, 1, ONE_GPU, 1, 6, 8),
        ([GPU], 8, 7, ONE_GPU, 1, 8, 8),  # never more than it may start
        ([GPU], 8, 8, ONE_GPU, 1, 8, 8),
        ([GPU], 3, 0, ONE_GPU, 1, 3, 3),  # of all types together
        ([GPU], 8, 0, {"CPU": 1, "GPU": 0.25}, 1, 20, 32),
        ([NodeType("gpu", GPU.resources, 100)], 100, 20, ONE_GPU, 1, 40, 100),  # as many again
        ([GPU, BIG], 4, 0, ONE_GPU, 1, 10, 10),  # two big ones and two others
        ([GPU, BIG], 9, 0, {"CPU": 1, "GPU": 2}, 1, 4, 4),  # only big ones can take it
        ([GPU], 8, 0, ONE_GPU, 4, 1, 2),
        ([GPU], 8, 0, ONE_GPU, 8, 1, 1),  # a trial over more nodes than come at first
        ([GPU], 8, 0, ONE_GPU, 9, 0, 0),
        ([GPU], 8, 0, {"CPU": 1, "GPU": 8}, 1, 0, 0),
        ([], 0, 2, ONE_GPU, 1, 2, 2),
    ],
)
def test_trials_that_an_autoscaler_is_to_see(
    types: list[NodeType], most: int, there: int, request_: dict[str, float], workers: int, ahead: int, full: int
) -> None:
    nodes = (HEAD, *(Node(f"n{i}", GPU.resources) for i in range(there)))
    found = Cluster(nodes, "head:6379", Autoscaler(tuple(types), most) if types else None)
    assert found.slots(request_, workers) == there // workers * (request_["GPU"] <= 1)
    assert found.slots_ahead(request_, workers) == ahead
    assert found.most_slots(request_, workers) == full


def test_a_head_that_takes_trials_counts() -> None:
    head = Node("head", {"CPU": 2.0}, is_head=True)
    autoscaler = Autoscaler((NodeType("cpu", {"CPU": 4.0}, 1),), 1)
    alone, grown = (Cluster(nodes, "h:1", autoscaler) for nodes in [(head,), (head, Node("w", {"CPU": 4.0}))])
    assert (alone.slots({"CPU": 1}), alone.slots_ahead({"CPU": 1}), alone.most_slots({"CPU": 1})) == (2, 6, 6)
    assert (grown.slots({"CPU": 1}), grown.slots_ahead({"CPU": 1}), grown.most_slots({"CPU": 1})) == (6, 6, 6)


def test_an_autoscalers_gpus_count() -> None:
    assert Cluster((HEAD,), "h:1", Autoscaler((GPU,), 8)).has_gpus
    assert not Cluster((HEAD,), "h:1", Autoscaler((NodeType("cpu", {"CPU": 4.0}, 1),), 1)).has_gpus


def test_words() -> None:
    assert format_resources({"CPU": 2.0, "GPU": 0.25, "memory": 1.5 * GIB}) == "2 CPU, 0.25 GPU, 1.5 GiB memory"
    assert str(cluster({"CPU": 2.0}, {"CPU": 4.0})) == "this machine: 2 CPU; 4 CPU"
    assert str(Cluster((Node("a", {"CPU": 2.0}),), "host:6379")) == "cluster host:6379: 2 CPU"


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (node,) = this_machine().nodes
    assert 1 <= node.resources["CPU"] <= (os.cpu_count() or 1)
    assert node.resources["GPU"] == 0
    assert 0 < node.resources["memory"] < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert this_machine().address is None


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 8), ("200000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8), ("", 8)]
)
def test_the_control_groups_quota_bounds_the_cores(monkeypatch: pytest.MonkeyPatch, quota: str, cores: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(machine, "_control_group", lambda name: quota)
    assert this_machine().nodes[0].resources["CPU"] == cores


def test_the_control_groups_limit_bounds_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_control_group", lambda name: "1073741824\n" if name == "memory.max" else "")
    assert this_machine().nodes[0].resources["memory"] == pytest.approx(0.7 * GIB)
    monkeypatch.setattr(machine, "_control_group", lambda name: "max\n" if name == "memory.max" else "")
    assert this_machine().nodes[0].resources["memory"] != pytest.approx(0.7 * GIB)


@pytest.mark.parametrize(
    ("visible", "gpus"), [("", 0), ("-1", 0), ("0", 1), ("0,1", 2), (" 3 , ", 1), ("NoDevFiles", 0), ("GPU-1a", 1)]
)
def test_visible_gpus(monkeypatch: pytest.MonkeyPatch, visible: str, gpus: int) -> None:
    if gpus == 0:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert this_machine().nodes[0].resources["GPU"] == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert this_machine().nodes[0].resources["GPU"] == gpus


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        ("echo 'GPU 0: NVIDIA H100 (UUID: a)'; echo 'GPU 1: NVIDIA H100 (UUID: b)'", 2),
        ("echo 'GPU 0: NVIDIA A100 (UUID: GPU-a)'; echo '  MIG 3g.20gb  Device 0: (UUID: MIG-b)'", 1),
        ("echo 'NVIDIA-SMI has failed'; exit 9", 0),
    ],
)
def test_gpus_that_the_driver_lists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, gpus: int) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert this_machine().nodes[0].resources["GPU"] == gpus


SPLIT = """
echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)'
echo '  MIG 3g.20gb     Device  0: (UUID: MIG-1)'
echo '  MIG 3g.20gb     Device  1: (UUID: MIG-2)'
echo 'GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b)'
"""


def test_each_slice_of_a_split_gpu_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh{SPLIT}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    resources = this_machine().nodes[0].resources
    assert (resources["GPU"], "accelerator_type:A100" in resources) == (3, True)
    assert mig_slices() == ("MIG-1", "MIG-2", "GPU-b")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2")
    assert (this_machine().nodes[0].resources["GPU"], mig_slices()) == (1, ())
    program.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA A100 (UUID: GPU-a)'\n")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert mig_slices() == ()
