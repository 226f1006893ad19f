"""``stop JOB``: stop a job."""

from __future__ import annotations

import click

from tuner.cli import options
from tuner.cli.output import echo


@click.command()
@options.job_argument
@options.jobs_address
@options.cluster_file
def command(job: str, address: str | None, cluster: str | None) -> None:
    """Stop a job. Its run stays in the storage; resume JOB continues it.

    Example: python -m tuner stop cifar_asha-20260101-120000 --cluster cluster/on_prem.yaml
    """
    from tuner.jobs.cluster import ClusterFile, jobs_api
    from tuner.jobs.jobs import stop

    with jobs_api(address, ClusterFile.read(cluster) if cluster else None) as client:
        was_running = stop(client, job)
    echo("stopped" if was_running else "it had ended", err=True)
