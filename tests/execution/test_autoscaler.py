"""What is read of an autoscaler: from the files of cluster/, from its process's command line, from Kubernetes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from ray.autoscaler._private.kuberay import node_provider
from ray.autoscaler._private.util import prepare_config

from tests.execution.monitor_process import monitor_process
from tuner.execution import autoscaler
from tuner.execution.autoscaler import configuration, understood
from tuner.plan.cluster import Autoscaler, NodeType

CLUSTER = Path(__file__).parents[2] / "cluster"


def test_the_clouds_files_give_their_gpu_nodes() -> None:
    known = understood(yaml.safe_load((CLUSTER / "aws_gpu.yaml").read_text()))
    assert known is not None
    assert known.most == 8
    each = {"CPU": 4.0, "GPU": 1.0}
    assert known.types == (NodeType("gpu_on_demand", each, 4), NodeType("gpu_spot", each, 8))


def test_a_type_without_a_limit_of_its_own_has_that_of_the_cluster() -> None:
    found = understood({"max_workers": 3, "available_node_types": {"a": {"resources": {"CPU": 1}}}})
    assert found is not None
    assert found.types == (NodeType("a", {"CPU": 1.0}, 3),)


def test_what_is_no_matter_for_trials_is_left_out() -> None:
    types = {"a": {"resources": {"CPU": 1, "object_store_memory": 1e9, "node:x": 1}}}
    found = understood({"max_workers": 1, "available_node_types": types})
    assert found is not None
    assert found.types[0].resources == {"CPU": 1.0}


def test_hosts_in_a_list_are_all_started_anyway() -> None:
    config = yaml.safe_load((CLUSTER / "on_prem.yaml").read_text())
    assert understood(prepare_config(copy.deepcopy(config))) is None
    assert understood({}) is None


def test_the_configuration_is_that_of_the_process_that_serves_this_ray(tmp_path: Path) -> None:
    with monitor_process(tmp_path, "max_workers: 3"):
        assert configuration("61234") == {"max_workers": 3}
        assert configuration("61235") == {}


def test_a_head_knows_its_only_autoscaler_without_a_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoscaler, "_MONITORS", ("mine.py",))  # other tests may have a Ray meanwhile
    assert configuration(None) == {}
    with monitor_process(tmp_path, "max_workers: 3", "mine.py"):
        assert configuration(None) == {"max_workers": 3}


@pytest.mark.parametrize(("most", "gpus", "cpus"), [(9, 29.0, 32.0), (5, 26.0, 20.0), (2, 16.0, 8.0), (0, 0.0, 0.0)])
def test_what_all_nodes_that_may_start_have(most: int, gpus: float, cpus: float) -> None:
    few = NodeType("few GPUs", {"CPU": 4.0, "GPU": 1.0}, 5)
    many = NodeType("many GPUs", {"CPU": 4.0, "GPU": 8.0}, 3)
    found = Autoscaler((few, many), most)
    assert (found.all("GPU"), found.all("CPU"), found.all("TPU")) == (gpus, cpus, 0)


def kubernetes(monkeypatch: pytest.MonkeyPatch, folder: Path, answer: dict[str, Any] | Exception) -> None:
    class Client:
        def __init__(self, namespace: str) -> None:
            assert namespace == "research"

        def get(self, path: str) -> dict[str, Any]:
            assert path == "rayclusters/tuner-x"
            if isinstance(answer, Exception):
                raise answer
            return answer

    (folder / "namespace").write_text("research")
    monkeypatch.setenv("RAY_CLUSTER_NAME", "tuner-x")
    monkeypatch.setattr(autoscaler, "_KUBERNETES_NAMESPACE", folder / "namespace")
    monkeypatch.setattr(node_provider, "KubernetesHttpApiClient", Client)


def test_kuberays_groups_are_read_from_the_clusters_resource(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    *_, job = yaml.safe_load_all((CLUSTER / "kuberay.yaml").read_text())
    spec = job["spec"]["rayClusterSpec"]
    kubernetes(monkeypatch, tmp_path, {"metadata": {"name": "tuner-x", "namespace": "research"}, "spec": spec})
    known = understood(configuration("1"))
    assert known is not None
    assert known.types == (NodeType("gpu", {"CPU": 4.0, "GPU": 1.0, "memory": 14 * 2.0**30}, 8),)


def test_a_kuberay_cluster_without_autoscaling_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kubernetes(monkeypatch, tmp_path, {"spec": {"workerGroupSpecs": []}})
    assert configuration("1") == {}


def test_a_resource_that_may_not_be_read_gives_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kubernetes(monkeypatch, tmp_path, requests.HTTPError("403 Forbidden"))
    assert configuration("1") == {}
