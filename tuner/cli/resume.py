"""``resume RUN``: continue an interrupted search."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli import options
from tuner.cli.output import echo
from tuner.storage import STORAGE


@click.command()
@options.run_argument
@options.storage
@options.address
@options.trust
@click.option("--project", metavar="DIR", help="Where the code is now; by default where it was when the search began.")
@options.cluster_file
@options.exclude
@options.include
@options.as_json
def command(
    run_: str,
    storage: str,
    address: str | None,
    trust: bool,
    project: str | None,
    cluster: str | None,
    exclude: tuple[str, ...],
    include: tuple[str, ...],
    as_json: bool,
) -> None:
    """Continue a search that did not come to its end, after Ctrl-C, kill -9, a crash or a reboot.

    Ended trials stay, started ones continue from their last checkpoint, then come those not yet started.

    A job that was stopped or failed continues as one, by its name, with the code below the working directory as it is
    now: with --cluster, or with the address of a dashboard (http://HEAD:8265).

    Example: python -m tuner resume runs/quickstart-20260101-120000
    """
    from tuner.errors import InputError

    as_job = cluster is not None or (address or "").startswith("http")
    if as_job and project is not None:
        raise InputError("--project: the code below the working directory travels with a job: start from there instead")
    if (exclude or include) and not as_job:
        option = "--exclude" if exclude else "--include"
        raise InputError(f"{option}: nothing travels without --cluster FILE or --address http://HEAD:8265")
    if as_job:
        _as_job(run_, None if storage == STORAGE else storage, address, cluster, exclude, include, as_json)
        return
    from tuner.cli.run import on_screen
    from tuner.loading import at_a_glance, find_run, last_known
    from tuner.provenance import experiment_of
    from tuner.resumption import move, resume

    folder = find_run(run_, storage)
    known = at_a_glance(folder)  # what the screen needs: `resume` reads the journal itself
    if known.unreadable:
        known = last_known(folder)
    if project is not None:
        move(known, Path(project))
    on_screen(
        experiment_of(known, trust),
        as_json,
        lambda listeners, say: resume(
            run_, storage=storage, address=address, trust=trust, project=project, listeners=listeners, say=say
        ),
    )


def _as_job(
    name: str,
    storage: str | None,
    address: str | None,
    cluster: str | None,
    exclude: tuple[str, ...],
    include: tuple[str, ...],
    as_json: bool,
) -> None:
    from tuner.jobs.cluster import ClusterFile, jobs_api
    from tuner.jobs.jobs import resumed, submit

    launched = ClusterFile.read(cluster) if cluster else None
    with jobs_api(address, launched) as client:
        submission = resumed(client, name, storage, exclude, launched, include)
        submit(client, submission, lambda text: echo(text, err=True))
    options.print_submission(submission, as_json)
