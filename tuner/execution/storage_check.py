"""Whether all nodes see the storage of a run: tried before the first trial, and where a trial starts."""

from __future__ import annotations

import platform
import uuid

from tuner.errors import EnvironmentFailure
from tuner.execution.failure_classifier import StorageUnseen
from tuner.runs.results import EXPERIMENT
from tuner.storage.folder import RunFolder

PATIENCE_S = 60.0
"""How long a node may take to answer: it imports pyarrow, and may have to ask a store elsewhere."""


def check_shared(folder: RunFolder) -> None:
    """Writes a file in ``folder``, has every node of the connected cluster read it and write another, and looks.

    Raises EnvironmentFailure which says what each node that cannot do so met. Checks nothing on a cluster of one node.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = [node for node in ray.nodes() if node["Alive"]]
    if len(alive) < 2:
        return
    probe = folder / f".shared-{uuid.uuid4().hex}"
    probe.filesystem.create_dir(probe.path)
    try:
        probe.write("driver", b"")
        asked = {
            ray.remote(_reads_and_writes)
            .options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
            .remote(probe, node["NodeID"]): node
            for node in alive
        }
        ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE_S)
        problems = [
            f"{_named(node['NodeManagerHostname'], node['NodeManagerAddress'])}: {problem}"
            for call, node in asked.items()
            if (problem := _node_result(call, probe, node))
        ]
    finally:
        probe.filesystem.delete_dir(probe.path)
    if problems:
        remedy = "take a path that all nodes mount, or s3://… or gs://…, with --storage"
        raise EnvironmentFailure(f"storage {folder.parent.location!r} is not shared: {'; '.join(problems)}; {remedy}")


def check_visible_here(folder: RunFolder) -> None:
    """Raises StorageUnseen on a node that does not see the run folder, as it joined after all had been asked."""
    from ray.util import get_node_ip_address

    if not folder.exists(EXPERIMENT):
        node = _named(platform.node(), get_node_ip_address())
        raise StorageUnseen(f"{node} does not see it: mount it there, or take that node away")


def _reads_and_writes(probe: RunFolder, name: str) -> str:
    """Run on a node: what is wrong there, or ''."""
    try:
        probe.read("driver")
    except FileNotFoundError:
        return "it does not see the driver's file there"
    except OSError as error:
        return f"cannot be read: {error}"
    try:
        probe.write(name, b"")
    except OSError as error:
        return f"cannot be written: {error}"
    return ""


def _node_result(call: object, probe: RunFolder, node: dict[str, str]) -> str:
    import ray

    try:
        problem = str(ray.get(call, timeout=0))
    except ray.exceptions.GetTimeoutError:
        return f"no answer within {PATIENCE_S:.0f} s"
    except ray.exceptions.RayError as error:
        return str(error).strip().splitlines()[-1]
    return problem or ("" if probe.exists(node["NodeID"]) else "the driver does not see its file there")


def _named(host: str, address: str) -> str:
    return f"node {host}" if host == address else f"node {host} ({address})"
