"""One network of hosts, and one Ray cluster on it, for all tests that do not break them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import yaml

from tests.cluster.hosts import Hosts
from tests.cluster.launcher import ROOT, Cluster, on_hosts
from tests.cluster.namespaces import missing
from tests.cluster.store import Store


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests that kill hosts come after those that look at them; the one that takes all down comes last."""
    last = ("tests/cluster/test_team.py", "tests/cluster/test_jobs.py", "test_ray_down_and_ray_stop_leave_nothing")
    items.sort(key=lambda item: [name in item.nodeid for name in reversed(last)])


@pytest.fixture(scope="session")
def possible() -> None:
    """CI must be able to make hosts; elsewhere tests that need them are skipped where it cannot be done."""
    if reason := missing():
        pytest.fail(reason) if "CI" in os.environ else pytest.skip(reason)


@pytest.fixture(scope="session")
def hosts(possible: None) -> Iterator[Hosts]:
    with Hosts() as made:
        yield made


@pytest.fixture(scope="session")
def cluster(hosts: Hosts) -> Cluster:
    """Brought up with ``ray up cluster/on_prem.yaml``: a head and two workers of 2 CPUs, the workers with 2 GPUs."""
    config = yaml.safe_load((ROOT / "cluster/on_prem.yaml").read_text())
    config["metadata"] = {"storage": str(hosts.shared), "mlflow": config["metadata"]["mlflow"]}
    made = Cluster(hosts, on_hosts(config, hosts))
    made.up()
    made.wait_for(3)
    return made


@pytest.fixture(scope="session")
def store(hosts: Hosts) -> Iterator[Store]:
    """An object store that all hosts reach, the laptop too."""
    with Store(hosts) as made:
        yield made
