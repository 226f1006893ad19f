"""Submits the jobs of a cluster that lost its head to the new one. Run it after `ray start --head`.

    python -m tuner.jobs.recover --cluster ~/ray_bootstrap_config.yaml      the launcher files in cluster/ do it
    python -m tuner.jobs.recover --storage S

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
from tuner.jobs.client import submit_job
from tuner.jobs.cluster_address import PORT, ClusterFile, jobs_api
from tuner.jobs.record import recorded, stored_jobs


def resubmit_all(storage: str, nodes: int, address: str) -> bool:
    """Submits the jobs again that ``storage`` has records of, and says which continue; whether all do.

    They wait for a cluster of ``nodes``. Raises EnvironmentFailure if storage or cluster cannot be used.
    """
    whole = True
    with jobs_api(address, None) as client:
        for name in recorded(storage):
            with tempfile.TemporaryDirectory(prefix="tuner-code-") as folder:
                try:
                    job = stored_jobs(storage, name)
                    job.unpack(Path(folder))
                    if submit_job(client, dataclasses.replace(job, command=f"{job.command} --again {nodes}"), folder):
                        print(f"job {name} continues: the cluster lost its head while it ran", flush=True)
                except EnvironmentFailure as error:  # of this one; the others may continue
                    print(f"error: job {name}: {error}", file=sys.stderr)
                    whole = False
    return whole


def recover(cluster: str | None, storage: str | None, address: str | None) -> bool:
    """Takes up the jobs of ``storage``, or of that which the launcher file ``cluster`` names; whether all continue.

    ``address``: of the Jobs API; by default this machine's. Raises InputError if no storage is named, and as `revive`.
    """
    launched = ClusterFile.read(cluster) if cluster else None
    storage = storage or (launched.storage if launched else None)
    if storage is None:
        raise InputError("--storage: where the jobs ran whose cluster lost its head, or --cluster FILE that names it")
    return resubmit_all(storage, launched.nodes if launched else 1, address or f"http://127.0.0.1:{PORT}")


def main() -> None:
    """As ``python -m tuner jobs recover``. The launcher files of clusters that run call it by this name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster", metavar="FILE", help="a launcher file, which names the storage")
    parser.add_argument("--storage", metavar="S")
    parser.add_argument("--address", help="of the Jobs API")
    given = parser.parse_args()
    try:
        whole = recover(given.cluster, given.storage, given.address)
    except TunerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    sys.exit(0 if whole else EnvironmentFailure.exit_status)


if __name__ == "__main__":
    main()
