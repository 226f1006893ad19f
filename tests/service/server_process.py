"""A service in a process of its own: `python -m tests.service.server_process STORAGE PORT [CLUSTER]`.

Its cluster is in memory, of this process or of the one that listens at the address ``CLUSTER``. Experiments are not
checked, so that a search is queued at once.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

from tests.service.fake import FakeCluster
from tuner.cli import failing
from tuner.errors import TunerError
from tuner.live.http_server import listening
from tuner.service import api
from tuner.service.check import Checked
from tuner.service.queue import SearchQueue
from tuner.service.serve import serve
from tuner.service.team import TeamFile
from tuner.storage.folder import RunFolder


class Cluster(FakeCluster):
    """With room for all, and its jobs by a method."""

    def __init__(self) -> None:
        super().__init__(gpus=1e6)

    def started(self) -> list[str]:
        """The jobs that were started."""
        return self.starts


@functools.cache
def _cluster() -> Cluster:
    return Cluster()


class Shared(BaseManager):
    """A process with the cluster of services, which outlives them."""


Shared.register("cluster", _cluster)


def shared(address: str) -> Shared:
    """To be started by one process, with `multiprocessing`'s spawn, and connected to by others."""
    return Shared(address, b"", ctx=multiprocessing.get_context("spawn"))


def cluster_at(address: str) -> Any:
    """The cluster that the process at an address has."""
    manager = shared(address)
    manager.connect()
    return manager.cluster()  # type: ignore[attr-defined]


def unchecked(project: Path, file: str, overrides: list[str], has_gpus: bool, mlflow: str | None) -> Checked:
    return Checked("exp", {"CPU": 1.0, "GPU": 1.0}, 9)


def started(url: str) -> None:
    print(url, flush=True)


def main() -> None:
    storage, port = RunFolder.at(sys.argv[1]), int(sys.argv[2])
    cluster = cluster_at(sys.argv[3]) if len(sys.argv) > 3 else FakeCluster()
    vars(api)["check"] = unchecked
    with (
        listening("127.0.0.1", port) as listener,
        SearchQueue.open(storage, cluster, TeamFile(storage).team) as queue,
    ):
        serve(queue, storage, listener, lambda text: print(text, file=sys.stderr), started, every_s=0.2)


if __name__ == "__main__":
    try:
        main()
    except TunerError as error:
        failing.show(error)
        sys.exit(error.exit_status)
