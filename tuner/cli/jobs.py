"""``jobs``: the searches of a cluster; ``jobs recover``: those of a cluster that lost its head."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from tuner.cli import options, remote
from tuner.cli.output import echo, print_json


@click.group(invoke_without_command=True)
@remote.cluster_or_service
@options.wide
@options.as_json
@click.pass_context
def command(ctx: click.Context, at: remote.Remote, wide: bool, as_json: bool) -> None:
    """List the searches that a cluster or a service was given, the latest first.

    \b
    Example:
      tuner jobs --cluster cluster/on_prem.yaml
      tuner jobs --service http://127.0.0.1:8380
    """
    if ctx.invoked_subcommand is not None:
        return
    from tuner.jobs.client import jobs
    from tuner.visualization.text_tables import table

    if (team := at.service()) is not None:
        searches = team.searches()
        found = searches if as_json else [_row(search) for search in searches]
        if problem := team.cluster()["problem"]:
            echo(f"NOTICE: {problem}; the queue waits", err=True)
    else:
        with at.jobs_api() as client:
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
@remote.jobs_address
@remote.cluster_file
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
