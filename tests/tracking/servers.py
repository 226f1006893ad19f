"""Real servers on this machine, each a process that can be stopped and started again: PostgreSQL and MLflow."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], bool], what: str, timeout: float = 90) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come to that"
        time.sleep(0.05)


class Postgres:
    """A database server with an empty database ``mlflow``. It refuses to run as root: then it is another user's."""

    def __init__(self, folder: Path) -> None:
        found = shutil.which("initdb")
        homes = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        assert homes, "PostgreSQL is missing: apt-get install postgresql"
        self._programs = homes[-1]
        users = {entry.pw_name for entry in pwd.getpwall()}
        user = "postgres" if "postgres" in users else "nobody"
        self._as_user = ["runuser", "-u", user, "--"] if os.geteuid() == 0 else []
        self._folder = Path("/tmp") / f"postgres_{os.getpid()}_{folder.name[-20:]}"  # its user may enter
        self._port = free_port()
        self._folder.mkdir()
        if self._as_user:
            shutil.chown(self._folder, user)
        self._run("initdb", "-D", f"{self._folder}/data", "-U", "me", "--auth=trust", "--no-sync")
        options = f"-p {self._port} -k {self._folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "-D", f"{self._folder}/data", "-o", options, "-l", f"{self._folder}/log", "-w", "start")
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self._port), "-U", "me", "mlflow")
        self.uri = f"postgresql://me:secret@127.0.0.1:{self._port}/mlflow"

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self._programs / program), *arguments]
        subprocess.run(command, check=True, cwd="/tmp", stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        self._run("pg_ctl", "-D", f"{self._folder}/data", "-m", "immediate", "stop")
        shutil.rmtree(self._folder)


class MlflowServer:
    """``mlflow server`` on a database."""

    def __init__(self, folder: Path, database: str) -> None:
        self._port = free_port()
        self.uri = f"http://127.0.0.1:{self._port}"
        self._command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", database, "--workers", "1"]
        self._command += ["--host", "127.0.0.1", "--port", str(self._port)]
        self._command += ["--artifacts-destination", str(folder / "artifacts")]
        self._log = folder / "server.log"
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._log.parent, stdout=log, stderr=log, start_new_session=True
            )
        wait_for(self._answers, "the MLflow server")

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        try:
            urllib.request.urlopen(f"{self.uri}/health", timeout=5).close()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return True

    def stop(self) -> None:
        """At once, with all its workers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
