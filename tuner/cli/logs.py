"""``logs JOB``: what a job says."""

from __future__ import annotations

import sys

import click

from tuner.cli import options
from tuner.cli.output import echo


@click.command()
@options.job_argument
@click.option("-f", "--follow", is_flag=True, help="Continue until the job ends; exit status 1 if it failed.")
@options.jobs_address
@options.cluster_file
def command(job: str, follow: bool, address: str | None, cluster: str | None) -> None:
    """Show what a job has said.

    Example: python -m tuner logs cifar_asha-20260101-120000 -f --cluster cluster/on_prem.yaml
    """
    from tuner.jobs.cluster import ClusterFile, jobs_api
    from tuner.jobs.jobs import logs

    with jobs_api(address, ClusterFile.read(cluster) if cluster else None) as client:
        status = logs(client, job, follow, lambda text: echo(text, nl=False))
    sys.exit(status)
