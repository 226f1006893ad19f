"""``jobs``: the searches of a cluster."""

from __future__ import annotations

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.command()
@options.jobs_address
@options.cluster_file
@options.as_json
def command(address: str | None, cluster: str | None, as_json: bool) -> None:
    """List the searches that a cluster was given, the latest first.

    Example: python -m tuner jobs --cluster cluster/on_prem.yaml
    """
    from tuner.jobs.cluster import ClusterFile, jobs_api
    from tuner.jobs.jobs import jobs
    from tuner.report.terminal import table

    with jobs_api(address, ClusterFile.read(cluster) if cluster else None) as client:
        found = jobs(client)
    if as_json:
        print_json(found)
    elif found:
        echo(table(found))
    else:
        echo("no jobs", err=True)
