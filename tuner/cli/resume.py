"""``resume RUN``: continue an interrupted search."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli import complete, options, remote
from tuner.cli.output import echo

_NOT_AT_SERVICE = {
    "--cluster": "cluster",
    "--jobs-address": "jobs_address",
    "--storage": "storage",
    "--ray-address": "address",
    "--trust": "trust",
    "--project": "project",
    "--exclude": "exclude",
    "--include": "include",
}
"""Options, with their parameters, that say nothing about a search of a service."""


@click.command()
@options.run_argument
@options.storage
@options.address
@options.trust
@options.option("--project", metavar="DIR", help="Folder of the code now; default: its folder when the search began.")
@options.option(
    "--cluster",
    allow_from_autoenv=False,
    metavar="FILE",
    shell_complete=complete.files,
    help="Continue a job: the launcher file of its cluster.",
)
@options.option(
    "--jobs-address",
    allow_from_autoenv=False,
    metavar="URL",
    help="Continue a job: the dashboard of its cluster (http://HEAD:8265), or a tunnel to it.",
)
@options.option(
    "--service",
    allow_from_autoenv=False,
    metavar="URL",
    help="Continue a search of a team's service: it is queued again.",
)
@remote.token_file
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
    jobs_address: str | None,
    service: str | None,
    token_file: str | None,
    exclude: tuple[str, ...],
    include: tuple[str, ...],
    as_json: bool,
) -> None:
    """Continue a search that did not come to its end, after Ctrl-C, kill -9, a crash or a reboot.

    Ended trials stay, started ones continue from their last checkpoint, then come those not yet started.

    A job that was stopped or failed continues as one, by its name, with the code below the working directory as it is
    now: with --cluster, or with --jobs-address. A search of a service continues with the code that it was submitted
    with: with --service.

    \b
    Example:
      tuner resume runs/quickstart-20260101-120000
    """
    from tuner.errors import InputError

    if service is not None:
        _at_service(run_, remote.Remote(jobs_address, cluster, service, token_file), as_json)
        return
    if jobs_address is None and (address or "").startswith("http"):
        jobs_address = address  # --address used to be both
    as_job = cluster is not None or jobs_address is not None
    if as_job and project is not None:
        raise InputError("--project: the code below the working directory travels with a job: start from there instead")
    if (exclude or include) and not as_job:
        option = "--exclude" if exclude else "--include"
        raise InputError(f"{option}: nothing travels without --cluster FILE or --jobs-address http://HEAD:8265")
    if as_job:
        _as_job(run_, storage if options.given("storage") else None, jobs_address, cluster, exclude, include, as_json)
        return
    from tuner.actions.resume import relocate, resume
    from tuner.cli.run import on_screen
    from tuner.runs.loading import find_run, load_latest
    from tuner.runs.provenance import experiment_of

    known = load_latest(find_run(run_, storage))
    if project is not None:
        relocate(known, Path(project))
    on_screen(
        experiment_of(known, trust),
        as_json,
        lambda listeners, say: resume(
            run_, storage=storage, address=address, trust=trust, project=project, listeners=listeners, say=say
        ),
    )


def _at_service(name: str, at: remote.Remote, as_json: bool) -> None:
    from tuner.errors import InputError

    if others := [shown for shown, parameter in _NOT_AT_SERVICE.items() if options.given(parameter)]:
        raise InputError(f"{others[0]}: a search of a service continues there as it was submitted: leave it out")
    team = at.service()
    assert team is not None  # none of the options of a cluster is given
    remote.print_queued(team.resume(name), as_json)


def _as_job(
    name: str,
    storage: str | None,
    address: str | None,
    cluster: str | None,
    exclude: tuple[str, ...],
    include: tuple[str, ...],
    as_json: bool,
) -> None:
    from tuner.jobs.client import prepare_resume, submit
    from tuner.jobs.cluster_address import ClusterFile, jobs_api

    launched = ClusterFile.read(cluster) if cluster else None
    with jobs_api(address, launched) as client:
        submission = prepare_resume(client, name, storage, exclude, launched, include)
        submit(client, submission, lambda text: echo(text, err=True))
    options.print_submission(submission, as_json)
