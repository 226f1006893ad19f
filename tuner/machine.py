"""What a machine or a cluster has for trials, and how many of them fit at once."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.spec.resources import ACCELERATOR


@dataclass(frozen=True)
class Node:
    """Resources of one machine, by Ray's names: ``CPU`` and ``GPU`` in units, ``memory`` in bytes."""

    name: str
    resources: Mapping[str, float]


@dataclass(frozen=True)
class Cluster:
    """The machines that trials may run on."""

    nodes: tuple[Node, ...]
    address: str | None = None
    """Address of a running Ray cluster; None for this machine alone."""

    @property
    def gpus(self) -> float:
        return sum(node.resources.get("GPU", 0) for node in self.nodes)

    def slots(self, request: Mapping[str, float], workers: int = 1) -> int:
        """How many trials run at once whose ``workers`` need ``request`` each; a worker is on one node."""
        return sum(_fits(node.resources, request) for node in self.nodes) // workers

    def __str__(self) -> str:
        where = f"cluster {self.address}" if self.address else "this machine"
        return f"{where}: " + "; ".join(describe(node.resources) for node in self.nodes)


def _fits(resources: Mapping[str, float], request: Mapping[str, float]) -> int:
    counts = []
    for name, amount in request.items():
        have = resources.get(name, 0)
        if name == "GPU" and amount < 1:  # Ray never splits one trial over two GPUs
            counts.append(int(have) * int(1 / amount + 1e-9))
        else:
            counts.append(int(have / amount + 1e-9))
    return min(counts, default=0)


def describe(resources: Mapping[str, float]) -> str:
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
    resources = {"CPU": float(_cpus()), "GPU": float(_gpus()), "memory": _memory_bytes()}
    resources |= {ACCELERATOR + kind: 1.0 for kind in _kinds() if resources["GPU"]}
    return Cluster((Node(os.uname().nodename if hasattr(os, "uname") else "localhost", resources),))


def _cpus() -> int:
    """CPU cores this process may use: its affinity, within the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _control_group("cpu.max").split()
    if len(quota) == 2 and quota[0] != "max":
        cores = min(cores, max(1, int(quota[0]) // int(quota[1])))
    return cores


def _gpus() -> int:
    """NVIDIA GPUs this process may use: what the driver lists, within CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() and part.strip() not in ("-1", "NoDevFiles")])
    return len(_listed() if shutil.which("nvidia-smi") else list(Path("/proc/driver/nvidia/gpus").glob("*")))


def _kinds() -> set[str]:
    """The kinds of the GPUs, named as Ray will: H100 for "GPU 0: NVIDIA H100 80GB HBM3 (UUID: …)"."""
    names = [line.partition(": ")[2].rpartition(" (UUID")[0] for line in _listed()]
    if not names:
        return set()
    from ray._private.accelerators.nvidia_gpu import NvidiaGPUAcceleratorManager

    return {kind for name in names if (kind := NvidiaGPUAcceleratorManager._gpu_name_to_accelerator_type(name))}


def _listed() -> list[str]:
    """What the driver says of each GPU."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    listing = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=30, check=False)
    return [line for line in listing.stdout.splitlines() if line.startswith("GPU ")] if listing.returncode == 0 else []


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
