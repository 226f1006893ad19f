"""What a machine or a cluster has for trials, and how many of them fit at once."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.experiment.resources import ACCELERATOR

FIRST_NODES = 5
"""How many nodes an autoscaler is asked for at first: as many as Ray's starts at once on a cluster without workers."""


@dataclass(frozen=True)
class Node:
    """Resources of one machine, by Ray's names: ``CPU`` and ``GPU`` in units, ``memory`` in bytes."""

    name: str
    resources: Mapping[str, float]
    is_head: bool = False
    """Whether it is the head of a cluster, which no autoscaler starts or ends."""


@dataclass(frozen=True)
class NodeType:
    """A kind of node that an autoscaler starts and ends."""

    name: str
    resources: Mapping[str, float]
    most: int
    """How many of them it may start."""

    def __str__(self) -> str:
        return f"{self.name} ({format_resources(self.resources)} each, at most {self.most})"


@dataclass(frozen=True)
class Autoscaler:
    """What the autoscaler of a cluster may start."""

    types: tuple[NodeType, ...]
    most: int
    """How many nodes of all types together."""

    def useful(self, request: Mapping[str, float]) -> list[NodeType]:
        """The types that can take a worker that needs ``request``, those that take the most first."""
        fitting = [kind for kind in self.types if kind.most and _fits(kind.resources, request)]
        return sorted(fitting, key=lambda kind: -_fits(kind.resources, request))

    def nodes(self, request: Mapping[str, float]) -> tuple[Node, ...]:
        """All that it may start for workers that need ``request``."""
        nodes = [Node(kind.name, kind.resources) for kind in self.useful(request) for _ in range(kind.most)]
        return tuple(nodes[: self.most])

    def all(self, name: str) -> float:
        """The most that all nodes that it may start have of a resource."""
        amounts = sorted((kind.resources.get(name, 0.0) for kind in self.types for _ in range(kind.most)), reverse=True)
        return sum(amounts[: self.most])

    def __str__(self) -> str:
        return f"its autoscaler adds up to {self.most} nodes: {', '.join(map(str, self.types))}"


@dataclass(frozen=True)
class Cluster:
    """The machines that trials may run on."""

    nodes: tuple[Node, ...]
    """Those that are there."""
    address: str | None = None
    """Address of a running Ray cluster; None for this machine alone."""
    autoscaler: Autoscaler | None = None
    """None where nodes come and go by other means only."""

    @property
    def places(self) -> list[Mapping[str, float]]:
        """The resources of each node that is there, and of each type that the autoscaler may start."""
        types = self.autoscaler.types if self.autoscaler else ()
        return [*(node.resources for node in self.nodes), *(kind.resources for kind in types)]

    @property
    def has_gpus(self) -> bool:
        """Whether a node has a GPU, or would have one if the autoscaler started it."""
        return any(resources.get("GPU", 0) > 0 for resources in self.places)

    def slots(self, request: Mapping[str, float], workers: int = 1) -> int:
        """How many trials run at once whose ``workers`` need ``request`` each; a worker is on one node."""
        return sum(_fits(node.resources, request) for node in self.nodes) // workers

    def most_slots(self, request: Mapping[str, float], workers: int = 1) -> int:
        """How many will, once the autoscaler has started all that it may; else `slots`."""
        if self.autoscaler is None:
            return self.slots(request, workers)
        head = tuple(node for node in self.nodes if node.is_head)
        full = Cluster((*head, *self.autoscaler.nodes(request)))
        return max(self.slots(request, workers), full.slots(request, workers))

    def slots_ahead(self, request: Mapping[str, float], workers: int = 1) -> int:
        """Trials that run or wait for a node at once: an autoscaler starts nodes only for trials that wait.

        As many again as fit now, or as many as `FIRST_NODES` take: the pace at which Ray's autoscaler grows a cluster.
        Not as many as it may ever start: each trial that waits was suggested without the reports of the running ones.
        """
        now, most = self.slots(request, workers), self.most_slots(request, workers)
        if self.autoscaler is None or now == most:
            return now
        first = Cluster(self.autoscaler.nodes(request)[:FIRST_NODES]).slots(request, workers)
        return min(most, now + max(now, first, 1))

    def __str__(self) -> str:
        where = f"cluster {self.address}" if self.address else "this machine"
        return f"{where}: " + "; ".join(format_resources(node.resources) for node in self.nodes)


def _fits(resources: Mapping[str, float], request: Mapping[str, float]) -> int:
    counts = []
    for name, amount in request.items():
        have = resources.get(name, 0)
        if name == "GPU" and amount < 1:  # Ray never splits one trial over two GPUs
            counts.append(int(have) * int(1 / amount + 1e-9))
        else:
            counts.append(int(have / amount + 1e-9))
    return min(counts, default=0)


def format_resources(resources: Mapping[str, float]) -> str:
    """``2 CPU, 1 GPU, 23.5 GiB memory``."""
    first = [name for name in ("CPU", "GPU", "memory") if name in resources]
    parts = []
    for name in [*first, *sorted(set(resources) - set(first))]:
        amount = resources[name]
        if name.startswith(ACCELERATOR):
            parts.append(name.removeprefix(ACCELERATOR))
        else:
            parts.append(f"{amount / 2**30:.1f} GiB memory" if name == "memory" else f"{amount:g} {name}")
    return ", ".join(parts)


def this_machine() -> Cluster:
    """This machine's resources, read without Ray and without torch; `run` tells Ray the same numbers."""
    listed = _listed()
    resources = {"CPU": float(_cpus()), "GPU": float(_gpus(listed)), "memory": _memory_bytes()}
    resources |= {ACCELERATOR + kind: 1.0 for kind in _kinds(listed) if resources["GPU"]}
    return Cluster((Node(os.uname().nodename if hasattr(os, "uname") else "localhost", resources),))


def _cpus() -> int:
    """CPU cores this process may use: its affinity, within the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _control_group("cpu.max").split()
    if len(quota) == 2 and quota[0] != "max":
        cores = min(cores, max(1, int(quota[0]) // int(quota[1])))
    return cores


def _gpus(listed: Sequence[str]) -> int:
    """NVIDIA GPUs this process may use, MIG slices included: what the driver lists, within CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() and part.strip() not in ("-1", "NoDevFiles")])
    if shutil.which("nvidia-smi") is None:
        return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    return sum(len(gpu) for gpu in _devices(listed))


def mig_slices() -> tuple[str, ...]:
    """The UUIDs of MIG slices, and of GPUs that are not split; empty without slices, or if CUDA_VISIBLE_DEVICES is set.

    Ray counts whole GPUs, and CUDA gives a process one slice at most. So that variable has to name the slices to Ray.
    """
    gpus = [] if "CUDA_VISIBLE_DEVICES" in os.environ else _devices(_listed())
    found = tuple(uuid for gpu in gpus for uuid in gpu)
    return found if any(uuid.startswith("MIG-") for uuid in found) else ()


def _devices(listed: Sequence[str]) -> list[list[str]]:
    """Of each GPU the UUIDs of its slices, or its own if it is not split."""
    found: list[list[str]] = []
    of_gpu: list[str] = []
    for line in listed:
        uuid = line.rpartition("UUID: ")[2].rstrip(")")
        if line.startswith("GPU "):
            of_gpu = [uuid]
            found.append(of_gpu)
        elif line.strip().startswith("MIG ") and found:
            of_gpu[:] = [one for one in of_gpu if one.startswith("MIG-")] + [uuid]
    return found


def _kinds(listed: Sequence[str]) -> set[str]:
    """The kinds of the GPUs, named as Ray will: H100 for "GPU 0: NVIDIA H100 80GB HBM3 (UUID: …)"."""
    names = [line.partition(": ")[2].rpartition(" (UUID")[0] for line in listed if line.startswith("GPU ")]
    if not names:
        return set()
    from ray._private.accelerators.nvidia_gpu import NvidiaGPUAcceleratorManager

    return {kind for name in names if (kind := NvidiaGPUAcceleratorManager._gpu_name_to_accelerator_type(name))}


def _listed() -> list[str]:
    """What the driver says of each GPU, and after it of its slices."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    listing = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=30, check=False)
    return listing.stdout.splitlines() if listing.returncode == 0 else []


def _memory_bytes() -> float:
    """Host memory for trials: 70 % of what this process may use, the rest is for Ray and the system."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = _control_group("memory.max").strip()
    return 0.7 * min(total, float(limit) if limit.isdigit() else total)


def _control_group(name: str) -> str:
    try:
        return Path("/sys/fs/cgroup", name).read_text()
    except OSError:
        return ""


def free_port(address: str) -> int:
    """A TCP port of this machine at which nobody listens now."""
    with socket.create_server((address, 0)) as server:
        return int(server.getsockname()[1])
