"""``fetch JOB``: copy a job's run folder here."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli import complete, options, remote
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
@remote.cluster_or_service
@options.as_json
def command(job: str, output: str, at: remote.Remote, as_json: bool) -> None:
    """Copy the present run folder of a job for `show`, `best`, `report` and `compare`.

    \b
    Example:
      tuner fetch cifar_asha-20260101-120000 --cluster cluster/on_prem.yaml
    """
    from tuner.jobs.client import fetch

    if (team := at.service()) is not None:
        folder = team.fetch(job, Path(output))
    else:
        with at.jobs_api() as client:
            folder = fetch(client, job, Path(output), at.launcher_file)
    if as_json:
        print_json({"job": job, "folder": str(folder)})
    else:
        echo(str(folder))
