"""``ray up`` and ``ray down`` over ssh, and who is let in meanwhile."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import Host, Hosts
from tests.cluster.launcher import PORT, ROOT, Cluster

pytestmark = pytest.mark.cluster

LOOPBACK = re.compile(r"(127\..*|\[::1\]|\[::ffff:127\..*)")
HARMLESS = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"


@pytest.fixture(scope="session")
def stranger(hosts: Hosts, cluster: Cluster) -> Host:
    """A host on the same network that is none of the cluster's."""
    return hosts.add("stranger")


def rays(host: Host) -> dict[int, str]:
    """Processes of Ray; not those of ssh, which keeps a connection open for a while, under a name with "ray" in it."""
    return {pid: line for pid, line in host.processes("ray").items() if not line.startswith("ssh: ")}


def open_ports(host: Host) -> dict[str, str]:
    """TCP ports that others can reach, with the program that listens."""
    found = {}
    for line in host.run("ss -ltnpH").splitlines():
        address, _, port = line.split()[3].rpartition(":")
        if not LOOPBACK.fullmatch(address):
            found[port] = line.split('"')[1]
    return found


def ask(stranger: Host, host: Host, token: str = "") -> dict[str, tuple[str, dict[str, Any]]]:
    """Of each open port of ``host``, the program and what it answers to a client with ``token``."""
    ports = open_ports(host)
    script = Path(__file__).with_name("stranger.py")
    said = stranger.run(f"python {script} {host.address} '{token}' {' '.join(ports)}", timeout=300).splitlines()[-1]
    return {port: (ports[port], answer) for port, answer in json.loads(said).items()}


def test_ray_up_brings_up_head_and_workers(cluster: Cluster) -> None:
    nodes = cluster.wait_for(3)
    assert set(nodes) == {cluster.hosts[name].address for name in ("head", "worker1", "worker2")}
    for name, gpus in (("head", 0), ("worker1", 2), ("worker2", 2)):
        resources = nodes[cluster.hosts[name].address]["Resources"]
        assert (resources["CPU"], resources.get("GPU", 0)) == (2, gpus)
    status = cluster.head.run("RAY_AUTH_MODE=token ray status")
    assert "3 local.cluster.node" in status
    assert "(no pending nodes)" in status
    assert "0.0/4.0 GPU" in status


def test_the_token_is_on_all_hosts_and_on_no_command_line(cluster: Cluster) -> None:
    token = (cluster.laptop.home / ".ray/auth_token").read_text().strip()
    for name in ("head", "worker1", "worker2"):
        host = cluster.hosts[name]
        assert (host.home / ".ray/auth_token").read_text().strip() == token
        assert not host.processes(token)


@pytest.mark.parametrize("name", ["head", "worker1"])
@pytest.mark.parametrize("token", ["", "f" * 64], ids=["no token", "wrong token"])
def test_a_client_without_the_token_is_refused_at_every_open_port(
    cluster: Cluster, stranger: Host, name: str, token: str
) -> None:
    """What it gets all the same are numbers: Prometheus metrics, for which Ray has no authentication."""
    answers = ask(stranger, cluster.hosts[name], token)
    assert answers["22"][0] == "sshd"
    for port, (program, answer) in answers.items():
        print(port, program, json.dumps(answer)[:400])
        match answer:
            case {"ssh": _}:
                assert "Permission denied" in stranger.ssh(cluster.hosts[name], "true", check=False)
            case {"http": paths}:
                metrics = all(said.startswith("200 # HELP") for said in paths.values())
                assert metrics or set(paths.values()) <= {"401", "403"}, (port, program, paths)
            case {"grpc": statuses}:
                assert set(statuses) == {"UNAUTHENTICATED"}, (port, program, statuses)


def test_a_client_with_the_token_is_let_in(cluster: Cluster, stranger: Host) -> None:
    """So what the test above sees is the token's work."""
    token = (cluster.laptop.home / ".ray/auth_token").read_text().strip()
    script = Path(__file__).parent
    code = f"import stranger; print(stranger.over_grpc('{cluster.head.address}', {PORT}, '{token}', '{HARMLESS}'))"
    assert stranger.run(f'cd {script}; python -c "{code}"').splitlines()[-1] == str({"OK": [HARMLESS]})


def test_ray_init_without_the_token_is_refused(cluster: Cluster, stranger: Host) -> None:
    """``ray://`` too, but there Ray tries for 30 s and does not say why."""
    address = f"{cluster.head.address}:{PORT}"
    said = stranger.run(f"python -c \"import ray; ray.init('{address}')\"", check=False, timeout=120)
    assert "AuthenticationError" in said, said


@pytest.mark.parametrize(
    ("token", "why"),
    [("", "it asks for a token, and there is none here"), ("f" * 64, "it knows another token than the one here")],
)
def test_a_search_without_the_token_ends_soon_and_says_why(
    cluster: Cluster, stranger: Host, token: str, why: str
) -> None:
    address, begun = f"{cluster.head.address}:{PORT}", time.monotonic()
    shown = f"RAY_AUTH_TOKEN={token}" if token else ""
    command = f"{shown} python -m tuner run experiments/quickstart.yaml --address {address}"
    said = stranger.run(f"cd {ROOT}; {command}; echo exit $?", timeout=200)
    assert time.monotonic() - begun < 60
    error, status = said.splitlines()[-2:]
    remedy = "put the cluster's (`ray get-auth-token` there) into ~/.ray/auth_token here"
    assert error == f"error: the Ray cluster at --ray-address {address} refuses us: {why}; {remedy}"
    assert status == "exit 4"


def test_ray_down_and_ray_stop_leave_nothing(cluster: Cluster) -> None:
    """The last test: see conftest.py."""
    cluster.down()
    assert not {host.name: rays(host) for host in cluster.hosts.hosts.values() if rays(host)}
