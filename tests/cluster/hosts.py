"""Hosts made of namespaces, on a network of their own: a cluster of machines on one machine.

A host is a set of Linux namespaces with a first process: its own network, processes, mounts, name and shared memory,
its own ``/tmp``, home folder and sshd. All are on one switch, a bridge in a network namespace of its own with no way
out, so that two runs never meet and nothing that listens on this machine is within reach. The namespaces bear no names:
they end with their processes, and these end with the process that made them, whatever ends it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.cluster.namespaces import END_WITH_PARENT, Namespaces, call, namespaces, pids, which

ROOT = Path(__file__).parents[2]
HOME = Path(pwd.getpwuid(os.geteuid()).pw_dir)
T = TypeVar("T")
PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
NETWORK = "10.77.0"
ADDRESSES = {"laptop": 2, "head": 10, "worker1": 11, "worker2": 12}
"""The laptop is where a user sits: it reaches the others by ssh, and has none of their storage."""

BOOT = """
set -eu
name=$1 disk=$2 shared=$3; shift 3
hostname "$name"
mount -t tmpfs -o size=2g tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
mkdir /run/sshd
mount --bind "$disk/../etc_hosts" /etc/hosts
mount --bind /dev/null /etc/resolv.conf  # a name that is not in there is unknown at once
for path in "$@"; do  # what /tmp and the home folder of this machine hold of Python and of the code
  mkdir -p "$disk$path"
  mount --bind -o ro "$path" "$disk$path"
done
if [ "$shared" != - ]; then mkdir -p "$disk$shared"; mount --bind "$shared" "$disk$shared"; fi
mount --rbind "$disk$HOME" "$HOME"
mount --rbind "$disk/tmp" /tmp
cd /
exec "$0" -S -c '
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever is orphaned and ends is not kept as a zombie
print("booted", flush=True)
while True: signal.pause()'
"""

SSHD = """
Port 22
HostKey ~/.ssh/host_key
AuthorizedKeysFile .ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PrintMotd no
Subsystem sftp internal-sftp
"""


def visible() -> list[Path]:
    """Folders that a host needs and that its own /tmp and home folder would hide."""
    hidden = (Path("/tmp"), HOME)
    wanted = {Path(sys.prefix), Path(sys.base_prefix), ROOT}
    return sorted(path for path in wanted if any(path.is_relative_to(folder) for folder in hidden))


class Host:
    """One machine; ``disk`` holds its ``/tmp`` and home folder, also when it is dead."""

    def __init__(self, hosts: Hosts, name: str, address: str, shared: bool) -> None:
        self.hosts, self.name, self.address, self.shared = hosts, name, address, shared
        self.disk = hosts.folder / name
        self.home = self.disk / str(HOME)[1:]
        self.namespaces: Namespaces | None = None
        (self.disk / "tmp").mkdir(parents=True)
        (self.disk / "tmp").chmod(0o1777)
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        for file in hosts.keys.iterdir():
            if file.name != "id_ed25519" or name == "laptop":
                shutil.copy(file, self.home / ".ssh")
        (self.home / ".bashrc").write_text(
            "".join(f"export {k}={shlex.quote(v)}\n" for k, v in hosts.variables.items())
        )
        (self.home / ".profile").write_text(". ~/.bashrc\n")

    def boot(self) -> Host:
        """Switches it on, also again after it was killed."""
        shared = self.hosts.shared if self.shared else "-"
        words = ["sh", "-c", BOOT, sys.executable, self.name, self.disk, shared, *visible()]
        kinds = ["--net", "--pid", "--mount", "--ipc", "--uts", "--mount-proc"]
        self.namespaces = Namespaces(kinds, list(map(str, words)), {**os.environ, "HOME": str(HOME)})
        switch, port, first = self.hosts.switch, f"to-{self.name}", self.namespaces.first
        card = "02:00:" + ":".join(f"{int(number):02x}" for number in self.address.split("."))  # the same at each boot
        peer = ("peer", "name", "eth0", "address", card, "netns", first)
        switch.enter("ip", "link", "add", port, "type", "veth", *peer)
        switch.enter("ip", "link", "set", port, "master", "switch", "up")
        self.namespaces.enter("ip", "link", "set", "lo", "up")
        self.namespaces.enter("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.namespaces.enter("ip", "link", "set", "eth0", "up")
        # without a default route Ray takes 127.0.0.1 for the host's address
        self.namespaces.enter("ip", "route", "add", "default", "via", f"{NETWORK}.1")
        self.run(f"{which('sshd')} -f ~/.ssh/sshd_config -E ~/.ssh/sshd.log")
        self.run("until (: > /dev/tcp/127.0.0.1/22) 2> /dev/null; do sleep 0.05; done")  # it listens after it forked
        return self

    def start(self, command: str, **keys: object) -> subprocess.Popen[str]:
        """Starts ``command`` in a login shell on this host, without the network; its process group is its own."""
        assert self.namespaces is not None
        inside = ["nsenter", "-t", str(self.namespaces.first), "--net", "--pid", "--mount", "--ipc", "--uts", "--wd=."]
        clean = [
            "env",
            "-i",
            f"HOME={HOME}",
            "USER=root",
            "LANG=C.UTF-8",
            "TERM=dumb",
            "PATH=/usr/bin:/bin:/usr/sbin:/sbin",
        ]
        return subprocess.Popen(
            [*END_WITH_PARENT, *inside, "--", *clean, "bash", "-lc", f"cd; {command}"],
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **keys,  # type: ignore[call-overload]
        )

    def run(self, command: str, timeout: float = 60, check: bool = True) -> str:
        """Runs ``command`` in a login shell on this host, without the network; what it wrote, errors too."""
        with tempfile.TemporaryFile("w+") as said:  # not a pipe: a daemon that it starts would keep that open
            process = self.start(command, stdout=said, stderr=subprocess.STDOUT)
            try:
                status: int | None = process.wait(timeout)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                status = None
            said.seek(0)
            text = said.read()
        assert status is not None, f"{self.name}: {command}: not done after {timeout} s: {text}"
        assert not check or status == 0, f"{self.name}: {command}: exit {status}: {text}"
        return text

    def ssh(self, host: Host, command: str, timeout: float = 60, check: bool = True) -> str:
        """Runs ``command`` on another host over the network, as a user does."""
        options = "-o BatchMode=yes -o ConnectTimeout=5"
        return self.run(f"ssh {options} {host.address} {shlex.quote(command)}", timeout, check)

    def cut(self) -> None:
        """Pulls its network cable out."""
        self.hosts.switch.enter("ip", "link", "set", f"to-{self.name}", "down")

    def mend(self) -> None:
        self.hosts.switch.enter("ip", "link", "set", f"to-{self.name}", "up")

    def kill(self) -> None:
        """The power fails: all its processes are gone, its disk stays."""
        if self.namespaces is not None:
            self.namespaces.kill()
            self.namespaces = None

    def processes(self, word: str = "") -> dict[int, str]:
        """Its processes, with their ids on this machine, whose command line holds ``word``."""
        assert self.namespaces is not None
        own, found = self.namespaces.identities(), {}
        for pid in pids():
            if own <= namespaces(pid):
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                    found[pid] = line.decode(errors="replace").strip()
        return {pid: line for pid, line in found.items() if word in line}


def until(condition: Callable[[], T], timeout: float = 300, every: float = 0.1) -> T:
    """Waits for ``condition``, and asks for it after each ``every`` seconds; its value."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(every)
    return value


class Hosts:
    """The switch and the hosts on it; as a context manager they are gone at its end, after a failure too.

    ``shared`` is a folder that all hosts but the laptop see at the same path, which is its path here too.
    """

    def __init__(self, names: tuple[str, ...] = tuple(ADDRESSES)) -> None:
        self.names = names
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Hosts:
        self.folder = Path(tempfile.mkdtemp(prefix="tuner-hosts-", dir="/tmp"))
        self.folder.chmod(0o755)
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        self.shared, self.keys = self.folder / "shared", self.folder / "keys"
        self.shared.mkdir()
        (self.folder / "etc_hosts").write_text("127.0.0.1 localhost\n")
        self.variables = self._environment() | {
            "RAY_USAGE_STATS_ENABLED": "0",
            "AWS_EC2_METADATA_DISABLED": "true",  # else each S3 client looks 8 s for Amazon's metadata server
        }
        self._make_keys()
        wait = "ip link add switch type bridge && ip link set switch up && echo booted && exec sleep infinity"
        self.switch = Namespaces(["--net"], ["sh", "-c", wait])
        self.switch.enter("ip", "address", "add", f"{NETWORK}.1/24", "dev", "switch")
        for name in self.names:
            self.add(name)

    def _environment(self) -> dict[str, str]:
        """Of whoever logs in: that of this process, so that nothing needs to be installed."""
        return {"PATH": f"{Path(sys.executable).parent}:{PATH}", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def _make_keys(self) -> None:
        """One key for the user, one for all machines, as when they were made from one image."""
        self.keys.mkdir(mode=0o700)
        for name in ("id_ed25519", "host_key"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tuner-hosts", "-f", self.keys / name)
        shutil.copy(self.keys / "id_ed25519.pub", self.keys / "authorized_keys")
        (self.keys / "known_hosts").write_text(f"* {(self.keys / 'host_key.pub').read_text()}")
        (self.keys / "sshd_config").write_text(SSHD.replace("~", str(HOME)))

    def add(self, name: str) -> Host:
        """A further machine joins the network."""
        number = ADDRESSES.get(name) or max(int(host.address.rpartition(".")[2]) for host in self.hosts.values()) + 1
        host = Host(self, name, f"{NETWORK}.{number}", shared=name != "laptop")
        with (self.folder / "etc_hosts").open("a") as file:  # the hosts have this very file
            file.write(f"{host.address} {name}\n")
        self.hosts[name] = host
        return host.boot()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.kill()
        if hasattr(self, "switch"):
            self.switch.kill()
        for _try in range(50):  # mounts end with the last process, which may take a moment
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                return
            time.sleep(0.1)
        raise OSError(f"{self.folder} cannot be removed")
