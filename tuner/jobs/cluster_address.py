"""The address of a cluster's Jobs API: given, or reached through ssh at the head of a launcher file's cluster."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import logging
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tuner.errors import EnvironmentFailure, InputError
from tuner.execution.auth import send_token
from tuner.plan.cluster import free_port
from tuner.redaction import has_secret
from tuner.spec.document import read_yaml
from tuner.storage.signing import key_file

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
    """The storage of the runs: ``metadata.storage``."""
    mlflow: str | None
    """The MLflow server as the head sees it: ``metadata.mlflow``."""
    nodes: int = 1
    """How many the cluster starts by itself, with the head; known of the file that Ray has put on the head."""

    @classmethod
    def read(cls, file: str) -> ClusterFile:
        """Raises InputError if it is missing or lacks what is needed."""
        if not Path(file).is_file():
            raise InputError(f"--cluster {file}: there is no such file; those of this repository are in cluster/")
        try:
            content: Any = read_yaml(Path(file).read_text(encoding="utf-8"), file).value
        except (UnicodeDecodeError, OSError) as error:
            raise InputError(f"--cluster {file}: cannot be read: {error}") from None
        provider, auth = _group(content, "provider", file), _group(content, "auth", file)
        told, kinds = (_group(content, name, file, {}) for name in ("metadata", "available_node_types"))
        user = _word(auth, "ssh_user", "auth", file, _USER)
        head = _word(provider, "head_ip", "provider", file, _HOST)
        if user is None:
            raise InputError(f"--cluster {file}: auth.ssh_user is missing: who may log in to the head")
        if head is None and provider.get("type") == "local":
            raise InputError(f"--cluster {file}: provider.head_ip is missing: name or address of the head")
        storage, mlflow = (_text(told, name, "metadata", file) for name in ("storage", "mlflow"))
        for name, uri in (("storage", storage), ("mlflow", mlflow)):
            if uri is not None and has_secret(uri):
                remedy = "the environment of the head has to hold it (AWS_SECRET_ACCESS_KEY, MLFLOW_TRACKING_PASSWORD)"
                raise InputError(f"--cluster {file}: metadata.{name}: a password or key must not stand in it: {remedy}")
        return cls(
            file,
            head,
            user,
            _text(auth, "ssh_private_key", "auth", file),
            storage,
            mlflow,
            1 + sum(_whole(_group(kinds, name, file), name, file) for name in kinds),
        )

    def head_address(self) -> str:
        """Raises EnvironmentFailure if the provider does not know it."""
        if self.head is not None:
            return self.head
        program = str(Path(sys.executable).with_name("ray"))
        command = [program, "get-head-ip", self.file]
        try:
            asked = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
            return asked.stdout.split()[-1]
        except (subprocess.SubprocessError, IndexError) as error:
            said = getattr(error, "stderr", None)
            reason = said.strip().splitlines()[-1] if isinstance(said, str) and said.strip() else "no answer"
        raise EnvironmentFailure(f"--cluster {self.file}: its head is not known: {reason}; is it up (`ray up`)?")

    def ssh(self) -> list[str]:
        """The beginning of an ssh command, up to the options.

        A host that is new is taken for what it says; one whose key has changed is refused. The hosts of
        this file have a list of keys of their own, as those of a cluster come and go.
        """
        key = ["-i", str(Path(self.key).expanduser())] if self.key else []
        known = ["-o", "StrictHostKeyChecking=accept-new", "-o", f'UserKnownHostsFile="{self._known_hosts()}"']
        patience = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={PATIENCE_S - 3:.0f}", "-o", "LogLevel=ERROR"]
        return ["ssh", *key, *patience, *known]

    def _known_hosts(self) -> Path:
        """Raises EnvironmentFailure if its folder cannot be made."""
        file = key_file().with_name(f"known_hosts-{re.sub(r'[^A-Za-z0-9_.-]', '_', Path(self.file).stem)}")
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentFailure(
                f"{file.parent} cannot be made: {error.strerror}: ssh keeps host keys there"
            ) from None
        return file

    def refused(self, head: str, said: str) -> EnvironmentFailure:
        """Why ssh, or a program that uses it, did not reach the head; ``said``: its words."""
        at = f"--cluster {self.file}: ssh {self.user}@{head}"
        if changed := _CHANGED.search(said):
            return EnvironmentFailure(
                f"{at}: its host key is not the one that it had: another machine has its address now, or somebody is "
                f"in between; if you know that it is new, delete line {changed[2]} of {changed[1]}"
            )
        return EnvironmentFailure(f"{at}: {' '.join(said.split()) or 'no answer'}; is it up?")


_CHANGED = re.compile(r"Offending \S+ key in (.+):(\d+)")
_USER, _HOST = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*"), re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:%-]*")
"""What ssh takes for no option."""


def _group(content: Any, name: str, file: str, absent: dict[str, Any] | None = None) -> dict[str, Any]:
    group = content.get(name, absent) if isinstance(content, dict) else None
    if group is None:
        raise InputError(f"--cluster {file}: {name} is missing: this is not a launcher file of Ray")
    if not isinstance(group, dict):
        raise InputError(f"--cluster {file}: {name}: must be keys with values, not {group!r}")
    return group


def _text(group: dict[str, Any], name: str, where: str, file: str) -> str | None:
    value = group.get(name)
    if value is None or isinstance(value, str):
        return value
    raise InputError(f"--cluster {file}: {where}.{name}: must be text, not {value!r}")


def _whole(group: dict[str, Any], name: str, file: str) -> int:
    value = group.get("min_workers", 0)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    key = f"available_node_types.{name}.min_workers"
    raise InputError(f"--cluster {file}: {key}: must be a whole number from 0 on, not {value!r}")


def _word(group: dict[str, Any], name: str, where: str, file: str, rule: re.Pattern[str]) -> str | None:
    """Text that becomes a part of ssh's command line."""
    value = _text(group, name, where, file)
    if value is not None and not rule.fullmatch(value):
        rule_text = "use letters, digits, '.', '_' and '-'"
        raise InputError(f"--cluster {file}: {where}.{name}: {value!r} is not a name: {rule_text}")
    return value


@contextlib.contextmanager
def jobs_api(
    address: str | None, cluster: ClusterFile | None, answer_s: float | None = None
) -> Iterator[JobSubmissionClient]:
    """Within: a client of the Jobs API. Raises EnvironmentFailure if there is none, or it refuses us.

    ``answer_s``: seconds after which a request without an answer raises requests.Timeout; None: it waits for ever.
    """
    if (address is None) == (cluster is None):
        raise InputError("where to: give --cluster FILE (a launcher file) or --jobs-address URL (http://HEAD:8265)")
    deadline = time.monotonic() + PATIENCE_S
    if cluster is not None:
        head = cluster.head_address()
        with _tunnel(cluster, head, deadline) as url:
            yield _client(url, f"--cluster {cluster.file}: port {PORT} of {head}, through ssh", deadline, answer_s)
    else:
        yield _client(_url(str(address)), f"--jobs-address {address}", deadline, answer_s)


def is_loopback(url: str) -> bool:
    """Whether the host of an address is this one, reached without a network."""
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _url(address: str) -> str:
    """Of the dashboard at ``address``, with scheme and port."""
    try:
        parsed = urllib.parse.urlsplit(address if "://" in address else f"http://{address}")
        known = bool(parsed.scheme in ("http", "https") and parsed.hostname and (parsed.port or PORT))
        str(parsed.hostname).encode("idna")
    except ValueError:  # UnicodeError is one
        known = False
    if not known:
        raise InputError(
            f"--jobs-address {address}: must be http://HEAD:{PORT}, the address of the cluster's dashboard"
        )
    return f"{parsed.scheme}://{parsed.netloc}{'' if parsed.port else f':{PORT}'}"


def _check_answers(url: str, given: str, deadline: float) -> None:
    """Raises EnvironmentFailure if no dashboard of Ray's answers at ``url`` in time; Ray's client would wait on."""
    remedy = f"is the cluster up, and is this the address of its dashboard (http://HEAD:{PORT}, or a tunnel to it)?"
    try:
        with urllib.request.urlopen(f"{url}/api/version", timeout=max(1.0, deadline - time.monotonic())) as answer:
            is_rays = b"ray_version" in answer.read(10_000)
    except urllib.error.HTTPError as error:
        is_rays = error.code in (401, 403)  # it asks for the token
    except http.client.HTTPException:
        is_rays = False
    except OSError as error:
        raise EnvironmentFailure(f"{given}: {getattr(error, 'reason', error)}; {remedy}") from None
    if not is_rays:
        raise EnvironmentFailure(f"{given}: something else than Ray's dashboard answers there; {remedy}")


def _client(url: str, given: str, deadline: float, answer_s: float | None) -> JobSubmissionClient:
    _check_answers(url, given, deadline)
    import ray
    from ray.job_submission import JobSubmissionClient

    class Limited(JobSubmissionClient):  # type: ignore[misc]  # Ray tells no types
        """Ray's own sets no limit."""

        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
            return super()._do_request(method, endpoint, **{"timeout": answer_s, **options})

    send_token()
    try:
        client = Limited(url)
    except (ConnectionError, RuntimeError, ray.exceptions.AuthenticationError, OSError) as error:
        text = " ".join(str(error).split())
        if re.search(r"\b40[13]\b|uthenticat", text):  # a port may hold these digits
            remedy = "does ~/.ray/auth_token here hold the cluster's token (`ray get-auth-token` there)?"
            raise EnvironmentFailure(f"{given}: the cluster does not know the token here; {remedy}") from None
        raise EnvironmentFailure(f"{given}: no Jobs API: {text}") from None
    for name in ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.WARNING)  # they tell of each file that is packed
    return client


@contextlib.contextmanager
def _tunnel(cluster: ClusterFile, head: str, deadline: float) -> Iterator[str]:
    """Within: the Jobs API of the head, which listens on its loopback only, is at this address."""
    port = free_port("127.0.0.1")
    if shutil.which("ssh") is None:
        raise EnvironmentFailure(f"--cluster {cluster.file}: ssh {cluster.user}@{head}: there is no program ssh here")
    forward = ["-o", "ExitOnForwardFailure=yes", "-o", "ControlPath=none", "-N"]  # by this very process
    tunnel = subprocess.Popen(
        [*cluster.ssh(), *forward, "-L", f"127.0.0.1:{port}:127.0.0.1:{PORT}", "--", f"{cluster.user}@{head}"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us
    )
    try:
        while not _listens(tunnel.pid, port):
            if tunnel.poll() is not None or time.monotonic() > deadline:
                tunnel.kill()
                raise cluster.refused(head, tunnel.communicate()[1] or "")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        tunnel.kill()
        tunnel.wait()
        if tunnel.stderr:
            tunnel.stderr.close()


def _listens(process: int, port: int) -> bool:
    """Whether it is this process that listens there: another user's would be sent the token."""
    with contextlib.suppress(psutil.Error):
        held = psutil.Process(process).net_connections("tcp4")
        return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in held)
    return False
