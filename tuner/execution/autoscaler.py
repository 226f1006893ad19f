"""What an autoscaler may start on the connected cluster.

Ray 2.60 does not tell it to drivers: ``get_cluster_config`` is None with the first autoscaler and with the second, and
no key of the internal store holds it. But the autoscaler's process on the head names its configuration file on its
command line, under ``ray up`` and any other launcher. KubeRay's is in another container, and reads the cluster's custom
resource, which the head's service account may read for that purpose.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.execution.slots import HEAD, UNCOUNTED
from tuner.plan.cluster import Autoscaler, NodeType

_FILE = "--autoscaling-config="
_MONITORS = ("autoscaler/_private/monitor.py", "autoscaler/v2/monitor.py")
_KUBERAY_NAME = "RAY_CLUSTER_NAME"
_KUBERNETES_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

PATIENCE_S = 30.0
"""How long the head may take to answer a driver on another node."""

_log = logging.getLogger("ray.tuner")


def autoscaler() -> Autoscaler | None:
    """The autoscaler of the connected cluster; None if it has none, or none that starts nodes."""
    import ray

    heads = [node["NodeID"] for node in ray.nodes() if node["Alive"] and HEAD in node["Resources"]]
    context = ray.get_runtime_context()
    if not heads:
        return None
    port = context.gcs_address.rpartition(":")[2]
    if context.get_node_id() == heads[0]:
        return understood(configuration(port))
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = ray.remote(configuration).options(
        num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(heads[0], soft=False)
    )
    try:
        return understood(ray.get(there.remote(port), timeout=PATIENCE_S))
    except ray.exceptions.RayError as error:
        _log.warning("the head does not tell what its autoscaler may start: %s", error)
        return None


def configuration(port: str | None) -> dict[str, Any]:
    """On the head: what the autoscaler of the Ray whose GCS listens at ``port`` goes by; empty without one.

    None: of the only Ray of this host that has an autoscaler.
    """
    import psutil
    import yaml

    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(word.endswith(_MONITORS) for word in words) and any(
            word.startswith("--gcs-address=") and (port is None or word.endswith(f":{port}")) for word in words
        ):
            files = [word.removeprefix(_FILE) for word in words if word.startswith(_FILE)]
            if files or port is not None:
                return dict(yaml.safe_load(Path(files[0]).expanduser().read_text())) if files else {}
    return _of_kuberay(os.environ[_KUBERAY_NAME]) if _KUBERAY_NAME in os.environ else {}


def _of_kuberay(name: str) -> dict[str, Any]:
    from ray.autoscaler._private.kuberay import autoscaling_config, node_provider

    try:
        client = node_provider.KubernetesHttpApiClient(_KUBERNETES_NAMESPACE.read_text())
        resource = client.get(f"rayclusters/{name}")
    except OSError as error:  # those of requests are
        _log.warning("the custom resource of Ray cluster %s cannot be read: %s", name, error)
        return {}
    if not resource["spec"].get("enableInTreeAutoscaling"):
        return {}
    return dict(autoscaling_config._derive_autoscaling_config_from_ray_cr(resource))


def understood(known: Mapping[str, Any]) -> Autoscaler | None:
    """Of a launcher file in the form that Ray's autoscaler gets it; None if it can start nothing.

    Hosts in a list (``provider.type: local``) have no resources there: the autoscaler starts all of them, whatever the
    demand.
    """
    most = int(known.get("max_workers", 0))
    types = tuple(
        NodeType(
            name,
            {resource: float(n) for resource, n in kind["resources"].items() if not resource.startswith(UNCOUNTED)},
            min(int(kind.get("max_workers", most)), most),
        )
        for name, kind in known.get("available_node_types", {}).items()
        if name != known.get("head_node_type") and kind.get("resources")
    )
    useful = tuple(kind for kind in types if kind.most)
    return Autoscaler(useful, min(most, sum(kind.most for kind in useful))) if useful else None
