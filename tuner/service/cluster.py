"""The cluster that a queue gives places on: its size and its jobs, by the Jobs API of its dashboard."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tuner.errors import EnvironmentFailure
from tuner.jobs.client import STORAGE_KEY, submit_job
from tuner.jobs.cluster_address import is_loopback, jobs_api
from tuner.jobs.record import Job
from tuner.service.interface import ENDED

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

ANSWER_S = 30.0
"""How long the dashboard may take for an answer."""

_MOST_NODES = 10_000

JobState = Literal["pending", "running", "succeeded", "failed", "stopped"]


@dataclass(frozen=True)
class Capacity:
    """What the machines of a cluster have now, used or not."""

    gpus: float
    cpus: float
    autoscaled: Capacity | None = None
    """All machines that its autoscaler may start, together; None if it has none, or if that is not known here."""


@dataclass(frozen=True)
class JobView:
    """A job, as the cluster knows it."""

    state: JobState
    message: str = ""
    """What the cluster tells of it."""
    storage: str | None = None
    """Of its run; None if it is not a job of tuner."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


class Cluster(Protocol):
    """Runs searches. Each method raises EnvironmentFailure if the cluster does not answer."""

    def capacity(self) -> Capacity:
        """Its size now."""

    def jobs(self) -> Mapping[str, JobView]:
        """By its id each job that the cluster knows."""

    def start(self, job: Job, code: Path, attempt: int) -> bool:
        """Has it run ``job`` with the code in a folder; False if it knows one of this id, which is left alone."""

    def stop(self, job_id: str) -> None:
        """Ends a job, as Ctrl-C ends a search."""

    def log(self, job_id: str) -> str:
        """The output of a job until now."""


class RayCluster:
    """A Ray cluster.

    Example:
        >>> from tuner.service.cluster import RayCluster
        >>> RayCluster("http://127.0.0.1:8265").address
        'http://127.0.0.1:8265'
    """

    def __init__(self, address: str) -> None:
        """``address``: of the dashboard, which has the Jobs API."""
        self.address = address
        self._autoscaled: tuple[Capacity | None] | None = None
        """Looked up when Ray answers, and again if it did not: another one may have been started."""

    def capacity(self) -> Capacity:
        """The sum over nodes that are alive. Raises EnvironmentFailure."""
        known, self._autoscaled = self._autoscaled, None
        now = self._now()
        self._autoscaled = known or (_autoscaled() if is_loopback(self.address) else None,)
        return replace(now, autoscaled=self._autoscaled[0])

    def _now(self) -> Capacity:
        with self._client() as client:
            params: Any = {"limit": _MOST_NODES, "detail": "true", "filter_keys": "state", "filter_predicates": "="}
            answer = client._do_request("GET", "/api/v0/nodes", params={**params, "filter_values": "ALIVE"})
            answer.raise_for_status()
            nodes = answer.json()["data"]["result"]["result"]
        totals = [node["resources_total"] or {} for node in nodes]
        gpus, cpus = (sum(float(total.get(name, 0.0)) for total in totals) for name in ("GPU", "CPU"))
        return Capacity(gpus, cpus)

    def jobs(self) -> dict[str, JobView]:
        """As `Cluster.jobs`. Raises EnvironmentFailure."""
        with self._client() as client:
            found = client.list_jobs()
        return {job.submission_id: _view(job) for job in found if job.submission_id}

    def start(self, job: Job, code: Path, attempt: int) -> bool:
        """As `Cluster.start`. Raises EnvironmentFailure."""
        with self._client() as client:
            return submit_job(client, job, str(code), attempt)

    def stop(self, job_id: str) -> None:
        """As `Cluster.stop`. Raises EnvironmentFailure."""
        with self._client() as client:
            client.stop_job(job_id)

    def log(self, job_id: str) -> str:
        """As `Cluster.log`. Raises EnvironmentFailure."""
        with self._client() as client:
            return str(client.get_job_logs(job_id))

    @contextlib.contextmanager
    def _client(self) -> Iterator[JobSubmissionClient]:
        """Within: a client whose every request has a limit in time. Raises EnvironmentFailure."""
        import requests
        from ray.exceptions import AuthenticationError

        with jobs_api(self.address, None, ANSWER_S) as client:
            try:
                yield client
            except requests.RequestException as error:
                told = " ".join(str(error).split())
                raise EnvironmentFailure(f"{self.address}: the cluster does not answer: {told}") from None
            except AuthenticationError as error:
                raise EnvironmentFailure(f"{self.address}: {' '.join(str(error).split())}") from None
            except RuntimeError as error:  # Ray's client: an answer that is not what was asked for
                told = " ".join(str(error).split())
                raise EnvironmentFailure(f"{self.address}: the cluster refuses: {told[:500]}") from None
            except (KeyError, TypeError, ValueError) as error:
                told = " ".join(f"{type(error).__name__}: {error}".split())
                raise EnvironmentFailure(f"{self.address}: its answer cannot be understood: {told[:500]}") from None


def _autoscaled() -> Capacity | None:
    """What the autoscaler of the Ray of this host may start."""
    from tuner.execution.autoscaler import configuration, understood

    try:
        found = understood(configuration(None))
    except OSError:  # the file of another user's Ray
        return None
    return None if found is None else Capacity(found.all("GPU"), found.all("CPU"))


def _view(job: Any) -> JobView:
    state: JobState = job.status.value.lower()
    return JobView(state, " ".join((job.message or "").split()), (job.metadata or {}).get(STORAGE_KEY))
