"""Why cluster/on_prem.yaml takes Ray's first autoscaler: what the second one does with local hosts.

`Reconciler.reconcile` is what the second autoscaler's monitor calls every few seconds; it is called here with Ray's own
provider of local hosts, and with a Ray that has each node as soon as its installation has been asked for. When these
tests fail, Ray has mended it: see whether on_prem.yaml can do without RAY_enable_autoscaler_v2=0.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ray.autoscaler._private.local.node_provider import LocalNodeProvider, record_local_head_state_if_needed
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig, IConfigReader
from ray.autoscaler.v2.instance_manager.instance_manager import InstanceManager, InstanceUpdatedSubscriber
from ray.autoscaler.v2.instance_manager.instance_storage import InstanceStorage
from ray.autoscaler.v2.instance_manager.node_provider import NodeProviderAdapter
from ray.autoscaler.v2.instance_manager.reconciler import Reconciler
from ray.autoscaler.v2.instance_manager.storage import InMemoryStorage
from ray.autoscaler.v2.instance_manager.subscribers.cloud_instance_updater import CloudInstanceUpdater
from ray.autoscaler.v2.instance_manager.subscribers.cloud_resource_monitor import CloudResourceMonitor
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler
from ray.core.generated.autoscaler_pb2 import ClusterResourceState, NodeState, NodeStatus
from ray.core.generated.instance_manager_pb2 import Instance, InstanceUpdateEvent

HEAD, WORKERS = "127.0.0.10", ["127.0.0.11", "127.0.0.12", "127.0.0.13"]  # nothing is sent to them


class Reader(IConfigReader):
    def __init__(self, config: AutoscalingConfig) -> None:
        self.config = config

    def get_cached_autoscaling_config(self) -> AutoscalingConfig:
        return self.config

    def refresh_cached_autoscaling_config(self) -> None:
        pass


class Installer(InstanceUpdatedSubscriber):
    """Takes down on which hosts Ray is to be started."""

    def __init__(self, storage: InstanceStorage) -> None:
        self.storage, self.hosts = storage, set[str]()

    def notify(self, events: list[InstanceUpdateEvent]) -> None:
        for event in events:
            if event.new_instance_status == Instance.RAY_INSTALLING:
                instances, _ = self.storage.get_instances(instance_ids={event.instance_id})
                self.hosts.add(instances[event.instance_id].cloud_instance_id)


def node(host: str) -> NodeState:
    """A running Ray node, as the GCS tells of it."""
    resources = {"CPU": 1.0} | ({"node:__internal_head__": 1.0} if host == HEAD else {})
    return NodeState(
        node_id=host.encode(),
        instance_id=host,
        ray_node_type_name="local.cluster.node",
        status=NodeStatus.RUNNING,
        total_resources=resources,
        available_resources=resources,
    )


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # Ray's files
@pytest.mark.parametrize("head_is_recorded", [False, True])
def test_the_second_autoscaler_starts_all_local_workers_but_one(
    head_is_recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not recorded, as it is: the head is taken for gone. Recorded: it still counts as one of the workers to start."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # where the provider keeps its state
    local = {"type": "local", "head_ip": HEAD, "worker_ips": WORKERS}
    config = AutoscalingConfig({"cluster_name": "c", "provider": local, "auth": {}}, skip_content_hash=True)
    [kind] = config.get_node_type_configs().values()
    assert kind.min_worker_nodes == len(WORKERS)
    provider = LocalNodeProvider(config.get_provider_config(), "c")
    if head_is_recorded:
        record_local_head_state_if_needed(provider)
    adapter, monitor = NodeProviderAdapter(provider, Reader(config)), CloudResourceMonitor()
    storage = InstanceStorage(cluster_id="c", storage=InMemoryStorage())
    installer = Installer(storage)
    manager = InstanceManager(storage, [CloudInstanceUpdater(adapter), installer, monitor])
    scheduler = ResourceDemandScheduler(None)
    for version in range(12):
        nodes = [node(HEAD), *(node(host) for host in installer.hosts)]
        Reconciler.reconcile(
            instance_manager=manager,
            scheduler=scheduler,
            cloud_provider=adapter,
            cloud_resource_monitor=monitor,
            ray_cluster_resource_state=ClusterResourceState(node_states=nodes, cluster_resource_state_version=version),
            non_terminated_cloud_instances=adapter.get_non_terminated(),
            autoscaling_config=config,
            cloud_provider_errors=adapter.poll_errors(),
        )
        time.sleep(0.05)  # launches are done by threads of the adapter
    assert len(installer.hosts) == len(WORKERS) - 1
