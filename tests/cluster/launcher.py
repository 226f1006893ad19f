"""A Ray cluster brought up on such hosts from the laptop with ``ray up``, over ssh, as on real machines."""

from __future__ import annotations

import json
import shlex
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.hosts import Host, Hosts

ROOT = Path(__file__).parents[2]

PORT = 6379
OBJECT_STORE = "--object-store-memory=100000000"  # of each host: they share this machine's memory
HEAD = f"--num-cpus=2 --num-gpus=0 {OBJECT_STORE}"
WORKER = f"--num-cpus=2 --num-gpus=2 {OBJECT_STORE}"
"""What a host has is said, not found: all would find the same two cores. GPUs in name are enough to place trials."""

INSTALLERS = ("pip", "apt-get", "uv ", "conda")

NODES = """
import json, sys, time, ray
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
count, deadline = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
while len(alive := [node for node in ray.nodes() if node["Alive"]]) != count and time.monotonic() < deadline:
    time.sleep(0.2)
print("NODES", json.dumps(alive))
"""


def on_hosts(
    config: dict[str, Any], hosts: Hosts, head: str = HEAD, worker: str = WORKER, install: bool = False
) -> dict[str, Any]:
    """A launcher file as a user would edit it for these hosts: addresses, user, key, what a host has.

    Without ``install`` commands that install are left out: the hosts see the Python environment of this process.
    """
    changed = deepcopy(config)
    workers = [host.address for host in hosts.hosts.values() if host.name.startswith("worker")]
    changed["provider"] |= {"head_ip": hosts["head"].address, "worker_ips": workers}
    changed["auth"] |= {"ssh_user": "root", "ssh_private_key": "~/.ssh/id_ed25519"}
    changed |= {"min_workers": len(workers), "max_workers": len(workers)}
    for key in (key for key in changed if key.endswith("_commands")):
        flags = worker if key.startswith("worker") else head
        changed[key] = [
            line.replace("ray start", f"ray start {flags}", 1)
            for line in changed[key]
            if install or not any(word in line for word in INSTALLERS)
        ]
    return changed


class Cluster:
    """The cluster of the launcher file ``~/cluster.yaml`` on the laptop."""

    def __init__(self, hosts: Hosts, config: dict[str, Any]) -> None:
        self.hosts, self.config = hosts, config

    @property
    def laptop(self) -> Host:
        return self.hosts["laptop"]

    @property
    def head(self) -> Host:
        return self.hosts["head"]

    def up(self) -> str:
        self.laptop.run("test -s ~/.ray/auth_token || ray get-auth-token --generate")
        (self.laptop.home / "cluster.yaml").write_text(yaml.safe_dump(self.config))
        return self.laptop.run(f"cd {ROOT} && ray up -y --no-config-cache ~/cluster.yaml", timeout=300)

    def down(self) -> None:
        """``ray down``, and ``ray stop`` on the workers.

        For hosts in a list ``ray down`` stops the head's Ray only. A worker's raylet then gives up after a minute,
        its log_monitor.py never does.
        """
        self.laptop.run("ray down -y ~/cluster.yaml", timeout=120)
        for address in self.config["provider"]["worker_ips"]:
            self.laptop.run(f"ssh -o BatchMode=yes {address} ray stop", timeout=120)

    def wait_for(self, count: int, timeout: float = 120) -> dict[str, dict[str, Any]]:
        """What Ray knows of the nodes that are alive, by address, as soon as there are ``count``."""
        command = f"python -c {shlex.quote(NODES)} {count} {timeout}"
        said = self.head.run(command, timeout + 60).splitlines()  # Ray may warn after it too
        (told,) = [line.removeprefix("NODES ") for line in said if line.startswith("NODES ")]
        nodes = {node["NodeManagerAddress"]: node for node in json.loads(told)}
        assert len(nodes) == count, f"{len(nodes)} nodes, not {count}: {sorted(nodes)}\n{self.monitor()}"
        return nodes

    def monitor(self) -> str:
        """The end of what Ray's autoscaler wrote."""
        return self.head.run("tail -n 60 /tmp/ray-root/ray/session_latest/logs/monitor.*", check=False)
