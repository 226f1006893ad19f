"""``submit FILE``: run a search on a cluster."""

from __future__ import annotations

import click

from tuner.cli import options
from tuner.cli.output import echo


@click.command()
@options.experiment_file
@options.overrides
@click.option("--name", metavar="N", help="Name of the job and of its run; by default the experiment's and the time.")
@click.option("--storage", metavar="DIR", help="Where the cluster keeps runs: a path that all nodes see, or a URI.")
@options.exclude
@options.jobs_address
@options.cluster_file
@options.as_json
def command(
    file: str,
    overrides: tuple[str, ...],
    name: str | None,
    storage: str | None,
    exclude: tuple[str, ...],
    address: str | None,
    cluster: str | None,
    as_json: bool,
) -> None:
    """Run the search of FILE on a cluster, as a job: it goes on when this computer is switched off.

    The code below the working directory travels, as far as .gitignore lets it; data and runs do not.

    Example: python -m tuner submit experiments/cifar_asha.yaml --cluster cluster/on_prem.yaml
    """
    from tuner.jobs.cluster import ClusterFile, jobs_api
    from tuner.jobs.jobs import prepared, submit

    launched = ClusterFile.read(cluster) if cluster else None
    submission = prepared(file, overrides, name, storage, exclude, launched)
    with jobs_api(address, launched) as client:
        submit(client, submission, lambda text: echo(text, err=True))
    options.print_submission(submission, as_json)
