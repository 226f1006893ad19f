"""``logs JOB``: the output of a job."""

from __future__ import annotations

import sys

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.command()
@options.job_argument
@options.option("-f", "--follow", is_flag=True, help="Continue until the job ends; exit status 1 if it failed.")
@options.jobs_address
@options.cluster_file
@options.service
@options.token_file
@options.as_json
def command(
    job: str,
    follow: bool,
    address: str | None,
    cluster: str | None,
    service: str | None,
    token_file: str | None,
    as_json: bool,
) -> None:
    """Show the output of a job.

    \b
    Example:
      tuner logs cifar_asha-20260101-120000 -f --cluster cluster/on_prem.yaml
    """
    from tuner.jobs.client import logs
    from tuner.jobs.cluster_address import ClusterFile, jobs_api

    told: list[str] = []
    show = told.append if as_json else lambda text: echo(text, nl=False)
    if (team := options.service_at(service, token_file)) is not None:
        status = int(team.logs(job, show, follow) == "failed" and follow)
    else:
        address, cluster = options.place(address, cluster)
        with jobs_api(address, ClusterFile.read(cluster) if cluster else None) as client:
            status = logs(client, job, follow, show)
    if as_json:
        print_json({"job": job, "log": "".join(told), "failed": bool(status)})
    sys.exit(status)
