"""Takes up the jobs of a cluster that lost its head: on the new one, after `ray start --head`.

    python -m tuner.jobs.revival --cluster ~/ray_bootstrap_config.yaml      the launcher files in cluster/ do it
    python -m tuner.jobs.revival --storage S

Each job of which the storage has a record (`tuner.jobs.record`) neither ended nor was stopped. It is submitted again
under its name, and its search continues from its journal. A job that this cluster knows is left alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path

from tuner.errors import EnvironmentFailure, InputError, TunerError
from tuner.jobs.cluster import PORT, ClusterFile, jobs_api
from tuner.jobs.jobs import hand_over
from tuner.jobs.record import kept, recorded


def revive(storage: str, nodes: int, address: str) -> bool:
    """Submits the jobs again that ``storage`` has records of, and says which continue; whether all do.

    They wait for a cluster of ``nodes``. Raises EnvironmentFailure where storage or cluster cannot be used.
    """
    whole = True
    with jobs_api(address, None) as client:
        for name in recorded(storage):
            with tempfile.TemporaryDirectory(prefix="tuner-code-") as folder:
                try:
                    job = kept(storage, name)
                    job.unpack(Path(folder))
                    if hand_over(client, dataclasses.replace(job, command=f"{job.command} --again {nodes}"), folder):
                        print(f"job {name} continues: the cluster lost its head while it ran", flush=True)
                except EnvironmentFailure as error:  # of this one; the others may continue
                    print(f"error: job {name}: {error}", file=sys.stderr)
                    whole = False
    return whole


def main() -> None:
    """Takes up the jobs of the storage that the command line names."""
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
        whole = revive(storage, cluster.nodes if cluster else 1, given.address)
    except TunerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    sys.exit(0 if whole else EnvironmentFailure.exit_status)


if __name__ == "__main__":
    main()
