"""A service in a process of its own, on a cluster in memory: `python -m tests.service.server_process STORAGE PORT`.

Experiments are not checked, so that a search is queued at once.
"""

from __future__ import annotations

import sys
from pathlib import Path

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


def unchecked(project: Path, file: str, overrides: list[str], has_gpus: bool, mlflow: str | None) -> Checked:
    return Checked("exp", {"CPU": 1.0, "GPU": 1.0}, 9)


def started(url: str) -> None:
    print(url, flush=True)


def main() -> None:
    storage, port = RunFolder.at(sys.argv[1]), int(sys.argv[2])
    vars(api)["check"] = unchecked
    with (
        listening("127.0.0.1", port) as listener,
        SearchQueue.open(storage, FakeCluster(), TeamFile(storage).team) as queue,
    ):
        serve(queue, storage, listener, lambda text: print(text, file=sys.stderr), started, every_s=0.2)


if __name__ == "__main__":
    try:
        main()
    except TunerError as error:
        failing.show(error)
        sys.exit(error.exit_status)
