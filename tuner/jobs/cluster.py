"""Where a cluster's Jobs API is: at an address, or through ssh at the head of a launcher file's cluster."""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.engine.token import show_token
from tuner.errors import EnvironmentFailure, InputError
from tuner.spec.document import read_yaml

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

PORT = 8265
"""Of the Jobs API, which Ray's dashboard serves."""

PATIENCE_S = 15.0
"""How long the head may take to answer."""


@dataclass(frozen=True)
class ClusterFile:
    """What a launcher file says of the cluster that it brings up."""

    file: str
    head: str | None
    """Address of the head, where the file names it; else the provider knows it."""
    user: str
    key: str | None
    storage: str | None
    """Where runs are kept: ``metadata.storage``."""
    mlflow: str | None
    """The MLflow server as the head sees it: ``metadata.mlflow``."""

    @classmethod
    def read(cls, file: str) -> ClusterFile:
        """Raises InputError where it is missing or lacks what is needed."""
        if not Path(file).is_file():
            raise InputError(f"--cluster {file}: there is no such file; those of this repository are in cluster/")
        content: Any = read_yaml(Path(file).read_text(), file).value
        provider, auth = _group(content, "provider", file), _group(content, "auth", file)
        if "ssh_user" not in auth:
            raise InputError(f"--cluster {file}: auth.ssh_user is missing: who may log in to the head")
        if provider.get("type") == "local" and "head_ip" not in provider:
            raise InputError(f"--cluster {file}: provider.head_ip is missing: name or address of the head")
        told = content.get("metadata") or {}
        return cls(
            file,
            provider.get("head_ip"),
            auth["ssh_user"],
            auth.get("ssh_private_key"),
            told.get("storage"),
            told.get("mlflow"),
        )

    def head_address(self) -> str:
        """Raises EnvironmentFailure where the provider does not know it."""
        if self.head is not None:
            return self.head
        program = str(Path(sys.executable).with_name("ray"))
        asked = subprocess.run([program, "get-head-ip", self.file], capture_output=True, text=True, check=False)
        words = asked.stdout.split()
        if asked.returncode != 0 or not words:
            reason = (asked.stderr.strip().splitlines() or ["no answer"])[-1]
            raise EnvironmentFailure(f"--cluster {self.file}: its head is not known: {reason}; is it up (`ray up`)?")
        return words[-1]

    def ssh(self) -> list[str]:
        """The beginning of an ssh command, up to the options."""
        key = ["-i", str(Path(self.key).expanduser())] if self.key else []
        return ["ssh", *key, "-o", "BatchMode=yes", "-o", f"ConnectTimeout={PATIENCE_S:.0f}", *_NEW_HOSTS]


_NEW_HOSTS = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
"""As Ray's launcher: a cluster's hosts come and go, and reuse addresses."""


def _group(content: Any, name: str, file: str) -> dict[str, Any]:
    group = content.get(name) if isinstance(content, dict) else None
    if not isinstance(group, dict):
        raise InputError(f"--cluster {file}: {name} is missing: this is no launcher file of Ray")
    return group


@contextlib.contextmanager
def jobs_api(address: str | None, cluster: ClusterFile | None) -> Iterator[JobSubmissionClient]:
    """Within: a client of the Jobs API. Raises EnvironmentFailure where there is none, or it refuses us."""
    if (address is None) == (cluster is None):
        raise InputError("where to: give --cluster FILE (a launcher file) or --address URL (http://HEAD:8265)")
    if cluster is not None:
        with _tunnel(cluster) as url:
            yield _client(url, f"--cluster {cluster.file}")
        return
    url = str(address)
    if "://" not in url:
        url = f"http://{url}"
    parsed = urllib.parse.urlsplit(url)
    try:
        socket.create_connection((parsed.hostname or "", parsed.port or PORT), timeout=PATIENCE_S).close()
    except OSError as error:
        remedy = "is the cluster up, and is this the address of its dashboard (http://HEAD:8265, or a tunnel to it)?"
        raise EnvironmentFailure(f"--address {address}: {error}; {remedy}") from None
    yield _client(url if parsed.port else f"{url}:{PORT}", f"--address {address}")


def _client(url: str, given: str) -> JobSubmissionClient:
    import ray
    from ray.job_submission import JobSubmissionClient

    show_token()
    try:
        client = JobSubmissionClient(url)
    except (ConnectionError, RuntimeError, ray.exceptions.AuthenticationError, OSError) as error:
        text = " ".join(str(error).split())
        if "401" in text or "403" in text or "uthenticat" in text:
            remedy = "does ~/.ray/auth_token here hold the cluster's token (`ray get-auth-token` there)?"
            raise EnvironmentFailure(f"{given}: the cluster does not know the token here; {remedy}") from None
        raise EnvironmentFailure(f"{given}: no Jobs API: {text}") from None
    for name in ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.WARNING)  # they tell of each file that is packed
    return client


@contextlib.contextmanager
def _tunnel(cluster: ClusterFile) -> Iterator[str]:
    """Within: the Jobs API of the head, which listens on its loopback only, is at this address."""
    head, port = cluster.head_address(), _free_port()
    if shutil.which("ssh") is None:
        raise EnvironmentFailure(f"--cluster {cluster.file}: ssh {cluster.user}@{head}: there is no program ssh here")
    command = [*cluster.ssh(), "-N", "-L", f"127.0.0.1:{port}:127.0.0.1:{PORT}", f"{cluster.user}@{head}"]
    tunnel = subprocess.Popen(
        [*command, "-o", "ExitOnForwardFailure=yes"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not _listens(port):
            if tunnel.poll() is not None or time.monotonic() > deadline:
                tunnel.kill()
                said = " ".join((tunnel.communicate()[1] or "no answer").split())
                raise EnvironmentFailure(f"--cluster {cluster.file}: ssh {cluster.user}@{head}: {said}; is it up?")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        tunnel.kill()
        tunnel.wait()
        if tunnel.stderr:
            tunnel.stderr.close()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
