"""``resume RUN``: go on with an interrupted search."""

from __future__ import annotations

import click

from tuner.cli import options
from tuner.storage import STORAGE


@click.command()
@options.run_argument
@options.storage
@options.address
@options.cluster_file
@options.as_json
def command(run_: str, storage: str, address: str | None, cluster: str | None, as_json: bool) -> None:
    """Go on with a search that did not come to its end, after Ctrl-C, kill -9, a crash or a reboot.

    Ended trials stay, started ones go on from their last checkpoint, then come those not yet started.

    A job that was stopped or failed goes on as one, by its name, with the code below the working directory as it is
    now: with --cluster, or with the address of a dashboard (http://HEAD:8265).

    Example: python -m tuner resume runs/quickstart-20260101-120000
    """
    if cluster is not None or (address or "").startswith("http"):
        _as_job(run_, None if storage == STORAGE else storage, address, cluster, as_json)
        return
    from tuner.cli.run import on_screen
    from tuner.loading import find_run, last_known
    from tuner.runner import experiment_of, resume

    on_screen(
        experiment_of(last_known(find_run(run_, storage))),
        as_json,
        lambda listeners, say: resume(run_, storage=storage, address=address, listeners=listeners, say=say),
    )


def _as_job(name: str, storage: str | None, address: str | None, cluster: str | None, as_json: bool) -> None:
    from tuner.jobs.cluster import ClusterFile, jobs_api
    from tuner.jobs.jobs import resumed, submit

    launched = ClusterFile.read(cluster) if cluster else None
    with jobs_api(address, launched) as client:
        submission = resumed(client, name, storage or (launched.storage if launched else None))
        submit(client, submission, lambda text: click.echo(text, err=True))
    options.print_submission(submission, as_json)
