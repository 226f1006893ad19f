"""``jobs``: the searches of a cluster; ``jobs recover``: those of a cluster that lost its head."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.group(invoke_without_command=True)
@options.jobs_address
@options.cluster_file
@options.service
@options.token_file
@options.wide
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    address: str | None,
    cluster: str | None,
    service: str | None,
    token_file: str | None,
    wide: bool,
    as_json: bool,
) -> None:
    """List the searches that a cluster or a service was given, the latest first.

    \b
    Example:
      tuner jobs --cluster cluster/on_prem.yaml
      tuner jobs --service http://127.0.0.1:8380
    """
    if ctx.invoked_subcommand is not None:
        return
    from tuner.jobs.client import jobs
    from tuner.jobs.cluster_address import ClusterFile, jobs_api
    from tuner.visualization.text_tables import table

    if (team := options.service_at(service, token_file)) is not None:
        searches = team.searches()
        found = searches if as_json else [_row(search) for search in searches]
    else:
        address, cluster = options.place(address, cluster)
        with jobs_api(address, ClusterFile.read(cluster) if cluster else None) as client:
            found = jobs(client)
    if as_json:
        print_json(found)
    elif found:
        echo(table(found, *options.fit(wide)))
    else:
        echo("no jobs", err=True)


def _row(search: dict[str, Any]) -> dict[str, Any]:
    """Of the table of a service's searches."""
    return {
        "job": search["name"],
        "status": search["state"],
        "place": search["position"] or "",
        "submitted": time.strftime("%Y-%m-%d %H:%M", time.localtime(search["submitted"])),
        "by": search["user"],
        "why": search["reason"],
    }


@command.command()
@options.option("--storage", metavar="DIR", help="Storage of the jobs' runs; default: metadata.storage of --cluster.")
@options.jobs_address
@options.cluster_file
def recover(storage: str | None, address: str | None, cluster: str | None) -> None:
    """Continue the jobs of a cluster that lost its head, on the new head after ray start --head.

    \b
    Example:
      tuner jobs recover --cluster ~/ray_bootstrap_config.yaml
      tuner jobs recover --storage s3://bucket/runs

    The launcher files in cluster/ do it by themselves. A job that the cluster knows already is left alone. Without
    --jobs-address the dashboard of this machine is asked.

    Exit status: 0 all continue; 2 the input is wrong; 4 a job cannot be continued.
    """
    from tuner.errors import EnvironmentFailure
    from tuner.jobs.recover import recover as revived

    if not revived(cluster, storage, address):
        sys.exit(EnvironmentFailure.exit_status)
