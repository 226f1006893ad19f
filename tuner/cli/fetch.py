"""``fetch JOB``: copy a job's run folder here."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json
from tuner.storage.folder import STORAGE


@click.command()
@options.job_argument
@options.option(
    "--output-dir",
    "output",
    old=["-o", "--output"],
    default=STORAGE,
    show_default=True,
    metavar="DIR",
    shell_complete=complete.folders,
    help="Folder for the run folder.",
)
@options.jobs_address
@options.cluster_file
@options.service
@options.token_file
@options.as_json
def command(
    job: str,
    output: str,
    address: str | None,
    cluster: str | None,
    service: str | None,
    token_file: str | None,
    as_json: bool,
) -> None:
    """Copy the present run folder of a job for `show`, `best`, `report` and `compare`.

    \b
    Example:
      tuner fetch cifar_asha-20260101-120000 --cluster cluster/on_prem.yaml
    """
    from tuner.jobs.client import fetch
    from tuner.jobs.cluster_address import ClusterFile, jobs_api

    if (team := options.service_at(service, token_file)) is not None:
        folder = team.fetch(job, Path(output))
    else:
        address, cluster = options.place(address, cluster)
        launched = ClusterFile.read(cluster) if cluster else None
        with jobs_api(address, launched) as client:
            folder = fetch(client, job, Path(output), launched)
    if as_json:
        print_json({"job": job, "folder": str(folder)})
    else:
        echo(str(folder))
