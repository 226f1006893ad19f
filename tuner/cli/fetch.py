"""``fetch JOB``: copy a job's run folder here."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli import options
from tuner.cli.output import echo
from tuner.storage import STORAGE


@click.command()
@options.job_argument
@click.option("-o", "--output", default=STORAGE, show_default=True, metavar="DIR", help="Folder for the run folder.")
@options.jobs_address
@options.cluster_file
def command(job: str, output: str, address: str | None, cluster: str | None) -> None:
    """Copy the run folder of a job, as far as it has come, for `show`, `best`, `report` and `compare`.

    Example: python -m tuner fetch cifar_asha-20260101-120000 --cluster cluster/on_prem.yaml
    """
    from tuner.jobs.cluster import ClusterFile, jobs_api
    from tuner.jobs.jobs import fetch

    launched = ClusterFile.read(cluster) if cluster else None
    with jobs_api(address, launched) as client:
        echo(str(fetch(client, job, Path(output), launched)))
