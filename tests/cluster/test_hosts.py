"""The hosts themselves: who sees whom, what ends with what, and that nothing stays behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import ROOT, Host, Hosts, until
from tests.cluster.namespaces import call, namespaces, pids

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture
def few(possible: None) -> Iterator[Hosts]:
    """Hosts to be broken."""
    with Hosts(("laptop", "worker1")) as made:
        yield made


def here() -> dict[str, str]:
    """What this machine shows of its network and its mounts."""
    return {
        "links": call("ip", "-o", "link"),
        "names": call("ip", "netns", "list"),
        "mounts": Path("/proc/self/mountinfo").read_text(),
    }


def inhabited() -> set[str]:
    """Namespaces in which some process lives."""
    return set().union(*map(namespaces, pids()))


def reached(host: Host, other: Host, command: str) -> str:
    """As soon as ``other`` is reached; for some seconds ``host`` remembers that it was not there."""
    deadline = time.monotonic() + 20
    while "No route to host" in (said := host.ssh(other, command, check=False)) or "timed out" in said:
        assert time.monotonic() < deadline, said
    return said


def test_hosts_see_each_other_and_nothing_else(hosts: Hosts) -> None:
    for name in ("head", "worker1", "worker2"):
        assert hosts["laptop"].ssh(hosts[name], "hostname") == f"{name}\n"
        assert hosts["laptop"].run(f"ssh {name} 'echo $HOME; nproc' | wc -l") == "2\n"
    assert hosts["head"].run(f"getent hosts worker2 | grep -c {hosts['worker2'].address}") == "1\n"
    with socket.create_server(("0.0.0.0", 0)) as server:  # a server of this machine, at all its addresses
        for address in (*call("hostname", "-I").split(), "127.0.0.1"):
            reach = f"import socket; socket.create_connection(('{address}', {server.getsockname()[1]}), 2)"
            said = hosts["head"].run(f'{sys.executable} -c "{reach}" 2>&1 | tail -1', check=False)
            assert "Error" in said, f"the head reaches this machine at {address}"


def test_a_host_has_its_own_processes_files_and_shared_memory(hosts: Hosts) -> None:
    worker, other = hosts["worker1"], hosts["worker2"]
    for place in ("/tmp", "~", "/dev/shm", "/run"):
        worker.run(f"echo mine > {place}/mine")
        assert "No such file" in other.run(f"cat {place}/mine", check=False)
    assert not Path("/tmp/mine").exists()
    assert not Path("/dev/shm/mine").exists()
    assert (worker.disk / "tmp/mine").read_text() == "mine\n"
    assert int(worker.run("ps ax | wc -l")) < 20
    assert str(os.getpid()) not in worker.run("ps axo pid").split()


def test_shared_storage_is_seen_by_all_but_the_laptop(hosts: Hosts) -> None:
    hosts["worker1"].run(f"echo all > {hosts.shared}/file")
    assert (hosts.shared / "file").read_text() == "all\n"
    assert hosts["head"].run(f"cat {hosts.shared}/file") == "all\n"
    assert "No such file" in hosts["laptop"].run(f"cat {hosts.shared}/file", check=False)


def test_a_host_is_cut_off_and_comes_back(few: Hosts) -> None:
    laptop, worker = few["laptop"], few["worker1"]
    worker.cut()
    assert "exit" in laptop.run(f"ssh -o ConnectTimeout=2 {worker.address} true || echo exit", check=False)
    assert worker.run("echo alive") == "alive\n"
    worker.mend()
    assert reached(laptop, worker, "echo back") == "back\n"


def test_killing_one_host_leaves_the_others(few: Hosts) -> None:
    laptop, worker = few["laptop"], few["worker1"]
    worker.run("(sleep 1000 &) ; echo kept > /tmp/file")
    assert worker.namespaces is not None
    own = worker.namespaces.identities()
    assert len(own) == 5
    worker.kill()
    assert not own & inhabited()
    assert "exit" in laptop.run(f"ssh -o ConnectTimeout=2 {worker.address} true || echo exit", check=False)
    assert laptop.run("echo alive") == "alive\n"
    worker.boot()
    assert reached(laptop, worker, "cat /tmp/file") == "kept\n"
    assert not worker.processes("sleep 1000")


def test_a_host_joins(few: Hosts) -> None:
    joined = few.add("worker7")
    assert few["laptop"].ssh(joined, "hostname") == "worker7\n"
    assert "worker7" in few["worker1"].run("getent hosts worker7")


def test_teardown_after_a_failure_leaves_nothing(possible: None) -> None:
    before, own = here(), set()
    hosts = Hosts(("laptop", "head"))

    def fail() -> None:
        with hosts:
            own.update(*(host.namespaces.identities() for host in hosts.hosts.values() if host.namespaces))
            own.update(hosts.switch.identities())
            hosts["head"].run("nohup sleep 1000 > /dev/null 2>&1 &")
            until(lambda: hosts["head"].processes("sleep 1000"), 20)  # while a program starts it has no command line
            assert here() == before  # not even now: all is in namespaces of its own
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(own) == 11
    assert not own & inhabited()
    assert not hosts.folder.exists()
    assert here() == before


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_hosts_end_with_the_process_that_made_them(possible: None, name: str) -> None:
    """However it ends; kill -9 leaves a folder, and nothing else."""
    before = here()
    code = """if True:
        import signal, sys, time
        from tests.cluster.hosts import Hosts
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: sys.exit())
        with Hosts(("head",)) as hosts:
            print(hosts.folder, *hosts["head"].namespaces.identities(), *hosts.switch.identities(), flush=True)
            time.sleep(100)"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            folder, *own = process.stdout.readline().split()
            assert set(own) <= inhabited()
            process.send_signal(getattr(signal, name))
            process.wait(30)
        finally:
            process.kill()
    until(lambda: not set(own) & inhabited(), 10)
    assert here() == before
    assert Path(folder).exists() == (name == "SIGKILL")
    call("rm", "-rf", folder)
