"""Searches that run elsewhere: as a job of a cluster, or at the service of a team."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli import complete
from tuner.cli.options import given, option
from tuner.cli.output import echo, print_json

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

    from tuner.jobs.cluster_address import ClusterFile
    from tuner.service.client import Service
    from tuner.storage.folder import RunFolder

jobs_address = option(
    "--jobs-address",
    "address",
    old=["--address"],
    envvar="TUNER_JOBS_ADDRESS",
    show_envvar=True,
    metavar="URL",
    help="The cluster's dashboard (http://HEAD:8265), or a tunnel to it.",
)
cluster_file = option(
    "--cluster",
    envvar="TUNER_CLUSTER",
    show_envvar=True,
    metavar="FILE",
    shell_complete=complete.files,
    help="The launcher file of the cluster, whose head is reached by ssh.",
)
_service = option(
    "--service",
    envvar="TUNER_SERVICE",
    show_envvar=True,
    metavar="URL",
    help="A team's service (tuner serve), in place of a cluster.",
)
token_file = option(
    "--token-file",
    metavar="FILE",
    shell_complete=complete.files,
    help="File with your token of the service; without it TUNER_TOKEN has the token.",
)


@dataclass(frozen=True)
class Remote:
    """The place of a search, by the command line and the environment."""

    address: str | None
    """Of a cluster's dashboard."""
    cluster: str | None
    """The launcher file of a cluster."""
    url: str | None
    """Of a service."""
    token_file: str | None

    @property
    def is_known(self) -> bool:
        """Whether there is such a place."""
        return any((self.address, self.cluster, self.url))

    def service(self) -> Service | None:
        """The service to ask; None if a cluster is meant. Raises InputError if both are, or there is no token."""
        from tuner.errors import InputError
        from tuner.service.client import Service

        of_cluster = given("cluster") or given("address")
        if not self.url or (of_cluster and not given("service")):
            return None
        if of_cluster:
            raise InputError("--service URL asks a service: leave out --cluster and --jobs-address, or --service")
        return Service(self.url, self._token())

    @functools.cached_property
    def launcher_file(self) -> ClusterFile | None:
        """The file of the cluster. Raises InputError if it cannot be used."""
        from tuner.jobs.cluster_address import ClusterFile

        return ClusterFile.read(self.cluster) if self.cluster else None

    def jobs_api(self) -> contextlib.AbstractContextManager[JobSubmissionClient]:
        """As `tuner.jobs.cluster_address.jobs_api`."""
        from tuner.jobs.cluster_address import jobs_api

        return jobs_api(self.address, self.launcher_file)

    def _token(self) -> str:
        from tuner.errors import InputError
        from tuner.storage.folder import reason

        if self.token_file is None:
            token = os.environ.get("TUNER_TOKEN", "")
        else:
            try:
                token = Path(self.token_file).read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                raise InputError(f"--token-file {self.token_file}: cannot be read: {reason(error)}") from None
        if not token.strip():
            raise InputError(
                f"--service {self.url}: it needs your token, in the environment (TUNER_TOKEN) or in --token-file FILE"
            )
        return token.strip()


def cluster_or_service(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of a command for a cluster or a service, which it gets as ``at``, a `Remote`."""

    @functools.wraps(command)
    def called(
        *, address: str | None, cluster: str | None, service: str | None, token_file: str | None, **others: Any
    ) -> Any:
        if given("cluster") and not given("address"):  # what the command line names comes before the environment
            address = None
        elif given("address") and not given("cluster"):
            cluster = None
        return command(at=Remote(address, cluster, service, token_file), **others)

    return jobs_address(cluster_file(_service(token_file(called))))


def service(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of a command for a service alone, which it gets as ``at``, a `Remote`."""

    @functools.wraps(command)
    def called(*, service: str | None, token_file: str | None, **others: Any) -> Any:
        return command(at=Remote(None, None, service, token_file), **others)

    return _service(token_file(called))


def local_run(name: str, storage: str, at: Remote, options: str) -> RunFolder | None:
    """The run folder that ``name`` means; None if it is a search elsewhere.

    A run that no process works on may be the copy of one elsewhere, unless ``name`` is a path.

    Raises:
        InputError: There is no such run, and nothing says where else. ``options``: those that do.
    """
    from tuner.errors import InputError
    from tuner.runs.loading import find_run
    from tuner.storage.lock import holder

    if any(map(given, ("cluster", "address", "service"))):
        return None
    try:
        folder = find_run(name, storage)
    except InputError as error:
        if at.is_known:
            return None
        raise InputError(f"{error}; a search elsewhere: add {options}") from None
    may_be_copy = at.is_known and "/" not in name and holder(folder) is None
    return None if may_be_copy else folder


def print_queued(search: dict[str, Any], as_json: bool) -> None:
    """A search that a service has queued."""
    if as_json:
        print_json(search)
        return
    place = f", place {search['position']}" if search["position"] else ""
    echo(f"{search['state']}{place}{': ' if search['reason'] else ''}{search['reason']}", err=True)
    echo(search["name"])
