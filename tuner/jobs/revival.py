"""Takes up the jobs of a cluster that lost its head: on the new one, after `ray start --head`.

    python -m tuner.jobs.revival --cluster ~/ray_bootstrap_config.yaml      the launcher files in cluster/ do it
    python -m tuner.jobs.revival --storage S

Each job of which the storage has a record (`tuner.jobs.record`) neither ended nor was stopped. It is submitted again
under its name, and its search goes on from its journal. A job that this cluster knows is left alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path

from tuner.errors import InputError, TunerError
from tuner.jobs.cluster import PORT, ClusterFile, jobs_api
from tuner.jobs.jobs import hand_over
from tuner.jobs.record import kept


def revive(storage: str, nodes: int, address: str) -> list[str]:
    """Submits the jobs again that ``storage`` has records of; their names.

    They wait for a cluster of ``nodes``. Raises EnvironmentFailure where storage or cluster cannot be used.
    """
    names = []
    with jobs_api(address, None) as client:
        for job in kept(storage):
            again = dataclasses.replace(job, command=f"{job.command} --again {nodes}")
            with tempfile.TemporaryDirectory(prefix="tuner-code-") as folder:
                job.unpack(Path(folder))
                if hand_over(client, again, folder):
                    names.append(job.name)
    return names


def main() -> None:
    """Says which jobs go on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster", metavar="FILE", help="a launcher file, which names the storage")
    parser.add_argument("--storage", metavar="S")
    parser.add_argument("--address", default=f"http://127.0.0.1:{PORT}", help="of the Jobs API")
    given = parser.parse_args()
    try:
        cluster = ClusterFile.read(given.cluster) if given.cluster else None
        storage = given.storage or (cluster.storage if cluster else None)
        if storage is None:
            raise InputError(
                "--storage: where the jobs ran whose cluster lost its head, or --cluster FILE that names it"
            )
        for name in revive(storage, cluster.nodes if cluster else 1, given.address):
            print(f"job {name} goes on: the cluster lost its head while it ran")
    except TunerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
