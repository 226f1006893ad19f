"""``logs JOB``: the output of a job."""

from __future__ import annotations

import sys

import click

from tuner.cli import options, remote
from tuner.cli.output import echo, print_json


@click.command()
@options.job_argument
@options.option("-f", "--follow", is_flag=True, help="Continue until the job ends; exit status 1 if it failed.")
@remote.cluster_or_service
@options.as_json
def command(job: str, follow: bool, at: remote.Remote, as_json: bool) -> None:
    """Show the output of a job.

    \b
    Example:
      tuner logs cifar_asha-20260101-120000 -f --cluster cluster/on_prem.yaml
    """
    from tuner.jobs.client import logs

    told: list[str] = []
    show = told.append if as_json else lambda text: echo(text, nl=False)
    if (team := at.service()) is not None:
        status = int(team.logs(job, show, follow) == "failed" and follow)
    else:
        with at.jobs_api() as client:
            status = logs(client, job, follow, show)
    if as_json:
        print_json({"job": job, "log": "".join(told), "failed": bool(status)})
    sys.exit(status)
