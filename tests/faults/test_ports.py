"""What the Ray of a search without a cluster tells somebody who knows no token."""

from __future__ import annotations

import http.client
from pathlib import Path

import grpc
import psutil
import pytest
import ray

from tests.faults.search import Search, experiment

pytestmark = pytest.mark.faults

METHODS = (
    "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.object_manager.ObjectManagerService/Pull",
    "/ray.rpc.ObjectManagerService/Pull",
    "/ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "/ray.rpc.ReporterService/GetTraceback",
    "/ray.rpc.ReporterService/ReportOCMetrics",
)
"""One of each of Ray's servers."""


def listening(pid: int) -> dict[int, str]:
    """TCP ports of a process and those below it that other machines can reach, with the process's name."""
    parent = psutil.Process(pid)
    return {
        connection.laddr.port: process.name()
        for process in [parent, *parent.children(recursive=True)]
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.ip != "127.0.0.1"
    }


def answer(address: str, port: int) -> str:
    """What a request without a token gets."""
    client = http.client.HTTPConnection(address, port, timeout=60)
    try:
        client.request("GET", "/api/job_agent/jobs/")
        return f"HTTP {client.getresponse().status}"
    except http.client.BadStatusLine:  # it speaks gRPC
        pass
    finally:
        client.close()
    said = []
    for method in METHODS:
        with grpc.insecure_channel(f"{address}:{port}") as channel:
            try:
                channel.unary_unary(method)(b"", timeout=60)
                said.append(f"{method} answered")
            except grpc.RpcError as error:
                said.append(error.code().name)
    return ", ".join(sorted(set(said) - {"UNIMPLEMENTED"}))


@pytest.mark.parametrize("setting", ["RAY_AUTH_MODE=disabled", "HOME={}"], ids=["switched off", "no token yet"])
def test_who_knows_no_token_is_refused_at_every_port(tmp_path: Path, setting: str) -> None:
    name, _, value = setting.format(tmp_path).partition("=")
    search = Search(tmp_path, environment={name: value}).start(experiment(seconds=2))
    search.until(lambda: search.reports() >= 1, timeout=90)
    address = ray.util.get_node_ip_address()
    answers = {f"{name} {port}": answer(address, port) for port, name in listening(search.pid).items()}
    search.kill()
    assert len(answers) >= 6, answers
    assert set(answers.values()) <= {"UNAUTHENTICATED", "HTTP 401"}, answers
