"""Records the sessions of "A team on one cluster": `python docs/record_team.py` writes docs/_sessions/team_*.txt.

The laptop, the head and the workers are hosts of tests/cluster, with a network of their own (Linux, root). Nothing is
installed on them before. Ada and Bob have a folder each on the laptop, with a clone of this repository at its last
commit. They share one environment there, and one tunnel.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from fresh_hosts import FreshHosts  # noqa: E402
from record import fold, typed, write  # noqa: E402

from tests.cluster.hosts import Host, Hosts, until  # noqa: E402
from tests.cluster.launcher import Cluster, on_hosts  # noqa: E402

SERVICE = "http://127.0.0.1:8380"
TEAM = {"members": {"ada": {"admin": True, "gpus_at_once": 4}, "bob": {"weight": 3, "gpus_at_once": 4}}}
INSTALL = "python3 -m venv .venv && . .venv/bin/activate && pip install -q -c constraints.txt -e ."
MAKE_TOKEN = "(umask 077; ray get-auth-token --generate > /dev/null); chmod -R go= ~/.ray"
WAIT_S = 1200
STORAGE = "/mnt/tuner/runs"
"""As the page has it. Its place on the hosts is in a temporary folder."""


class Session:
    """What people type on hosts, and what is printed."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts, self.lines, self.began = hosts, list[str](), time.monotonic()

    def type(self, who: str, host: Host, line: str, before: str = "", keep: str = "") -> str:
        """Runs a command. Returns what it prints, of which lines with ``keep`` are shown."""
        self.lines += typed(line, f"{who}$")
        said = host.run(f"{before} {line.replace(STORAGE, str(self.hosts.shared))}", WAIT_S, check=False)
        said = said.replace(str(self.hosts.shared), STORAGE)
        shown = ["…" if keep else "", *(text for text in said.splitlines() if keep in text)]
        self.lines += [part for text in filter(None, shown) for part in fold(text)]
        print(self.lines[-1], file=sys.stderr)
        return said

    def later(self, text: str) -> None:
        """A remark with the time since the beginning."""
        seconds = round(time.monotonic() - self.began)
        self.lines.append(f"# {seconds // 60} min {seconds % 60} s after the first command: {text}")

    def end(self, name: str) -> None:
        """Writes what was typed since the last end."""
        write(name, self.lines, "docs/record_team.py")
        self.lines = []


def running(hosts: Hosts, name: str) -> int:
    """Trials of a search that run now."""
    live = hosts.shared / name / "live.json"
    trials = json.loads(live.read_text())["trials"].values() if live.exists() else ()
    return sum(trial["state"] == "running" for trial in trials)


@contextmanager
def tunnel(cluster: Cluster) -> Iterator[None]:
    """From the laptop to the service on the head."""
    to = f"-L 8380:127.0.0.1:8380 {cluster.head.address}"
    process = cluster.laptop.start(f"exec ssh -N -o BatchMode=yes -o ExitOnForwardFailure=yes {to}")
    try:
        until(lambda: "ssh" in cluster.laptop.run("ss -ltnpH 'sport = 8380'"))
        yield
    finally:
        process.kill()
        process.wait()


def record(hosts: Hosts) -> None:
    """Plays the tutorial."""
    config = yaml.safe_load((ROOT / "cluster/on_prem.yaml").read_text())
    config["metadata"] |= {"storage": str(hosts.shared)}
    cluster = Cluster(hosts, on_hosts(config, hosts, install=True))
    laptop, head = cluster.laptop, cluster.head
    for name in ("ada", "bob"):
        laptop.run(f"git clone -q {ROOT} ~/{name}/tuner")
    (laptop.home / "ada/tuner/cluster/on_prem.yaml").write_text(yaml.safe_dump(cluster.config))
    (laptop.home / "cluster.yaml").write_text(yaml.safe_dump(cluster.config))
    with (laptop.home / ".bashrc").open("a") as file:
        file.write('export PATH="$HOME/ada/tuner/.venv/bin:$PATH"\n')
    session, tokens = Session(hosts), dict[str, str]()

    def person(name: str) -> str:
        token = f"TUNER_SERVICE={SERVICE} TUNER_TOKEN={tokens[name]}" if name in tokens else ""
        return f"export COLUMNS=100 {token}; cd ~/{name}/tuner;"

    session.type("ada", laptop, INSTALL, person("ada"), keep="ERROR")
    session.type("ada", laptop, MAKE_TOKEN, person("ada"))
    session.type("ada", laptop, "ray up -y cluster/on_prem.yaml", person("ada"), keep="service of a team")
    cluster.wait_for(3, WAIT_S)
    session.later("head and workers are there")
    for name in ("ada", "bob"):
        said = session.type("head", head, f"tuner token add {name} --storage {STORAGE}")
        tokens[name] = said.splitlines()[-1].strip()
    session.lines = [line.replace(tokens["ada"], "tuner_…").replace(tokens["bob"], "tuner_…") for line in session.lines]
    session.end("team_start")
    with tunnel(cluster):
        gpus = "--set resources.gpu=1 --set budget.trials=2000 --set budget.wall_clock=20m"
        session.type("ada", laptop, f"tuner submit experiments/quickstart.yaml {gpus} --name ada-digits", person("ada"))
        until(lambda: running(hosts, "ada-digits") == 4, WAIT_S)
        session.type("bob", laptop, f"tuner submit experiments/quickstart.yaml {gpus} --name bob-digits", person("bob"))
        until(lambda: running(hosts, "ada-digits") == running(hosts, "bob-digits") == 2, WAIT_S)
        session.later("two trials of each search run")
        session.type("bob", laptop, "tuner jobs", person("bob"))
        session.end("team_share")
        session.type("bob", laptop, "tuner stop ada-digits", person("bob"))
        session.type("ada", laptop, "tuner control ada-digits pause", person("ada"))
        until(lambda: running(hosts, "bob-digits") == 4, WAIT_S)
        session.later("four trials of Bob run")
        session.type("ada", laptop, "tuner control ada-digits continue", person("ada"))
        until(lambda: running(hosts, "ada-digits") == running(hosts, "bob-digits") == 2, WAIT_S)
        session.type("ada", laptop, "tuner fetch ada-digits", person("ada"))
        session.type("ada", laptop, "tuner show ada-digits --brief", person("ada"))
        session.end("team_look")
        (hosts.shared / ".service/team.yaml").write_text(yaml.safe_dump(TEAM, sort_keys=False))
        session.type("head", head, f"cat {STORAGE}/.service/team.yaml")
        until(lambda: (running(hosts, "ada-digits"), running(hosts, "bob-digits")) == (1, 3), WAIT_S)
        session.later("three trials of Bob run, and one of Ada")
        session.type("ada", laptop, "tuner jobs", person("ada"))
        for name in ("ada", "bob"):
            session.type(name, laptop, f"tuner stop {name}-digits", person(name))
        session.end("team_shares")
    cluster.down()


if __name__ == "__main__":
    with FreshHosts() as made:
        record(made)
