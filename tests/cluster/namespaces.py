"""Processes in Linux namespaces of their own, which end with the process that made them, whatever ends it."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

PROGRAMS = {"ip": "iproute2", "sshd": "openssh-server", "ssh": "openssh-client", "rsync": "rsync"}
KINDS = ("net", "pid", "mnt", "ipc", "uts")

END_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


def missing() -> str:
    """What this machine lacks to make hosts; empty where it lacks nothing."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "hosts are made of namespaces: Linux, root"
    packages = [package for program, package in PROGRAMS.items() if which(program) is None]
    return f"apt-get install {' '.join(packages)}" if packages else ""


def which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def call(*command: str | int | Path, check: bool = True) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)
    assert not check or done.returncode == 0, f"{shlex.join(map(str, command))}: {done.stderr or done.stdout}"
    return done.stdout


def pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def parent(pid: int) -> int | None:
    """None where it has ended meanwhile."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def namespaces(pid: int | str) -> set[str]:
    """Of a process; empty where it has ended meanwhile."""
    with contextlib.suppress(OSError):
        return {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in KINDS}
    return set()


class Namespaces:
    """A process in namespaces of its own, and what runs there; ``first`` is its process id outside.

    ``program`` says "booted" when it is ready. Of it and of ``unshare``, the end of one is the end of the other.
    """

    def __init__(self, kinds: list[str], program: list[str], environment: dict[str, str] | None = None) -> None:
        command = [*END_WITH_PARENT, "unshare", *kinds, "--fork", "--kill-child=KILL", "--", *program]
        self.outer = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C is for the tests, which end these in order
        )
        assert self.outer.stdout is not None
        try:
            said = self.outer.stdout.readline().decode()
            if said != "booted\n":
                raise RuntimeError(f"{program[0]} did not boot: {said}{self.outer.stdout.read().decode()}")
            (self.first,) = [pid for pid in pids() if parent(pid) == self.outer.pid]
        except BaseException:
            self.outer.kill()
            raise

    def enter(self, *command: str | int | Path) -> str:
        """Runs ``command`` in the network of these namespaces, with the files and programs of this machine."""
        return call("nsenter", f"--net=/proc/{self.first}/ns/net", *command)

    def identities(self) -> set[str]:
        """Of the namespaces that are its own."""
        return namespaces(self.first) - namespaces("self")

    def kill(self) -> None:
        """kill -9 of the first process, with which the kernel ends all others."""
        if self.outer.poll() is None:
            os.kill(self.first, signal.SIGKILL)
        self.outer.wait(30)
        assert self.outer.stdout is not None
        self.outer.stdout.close()
