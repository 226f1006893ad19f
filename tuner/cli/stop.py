"""``stop RUN``, ``stop JOB``: stop a search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json

if TYPE_CHECKING:
    from tuner.storage.folder import RunFolder


@click.command()
@click.argument("name", metavar="RUN|JOB", shell_complete=complete.jobs)
@options.storage
@options.jobs_address
@options.cluster_file
@options.service
@options.token_file
@options.as_json
def command(
    name: str,
    storage: str,
    address: str | None,
    cluster: str | None,
    service: str | None,
    token_file: str | None,
    as_json: bool,
) -> None:
    """Stop a search of this machine as Ctrl-C does, and wait for its end; or stop a job of a cluster or a service.

    \b
    Example:
      tuner stop runs/quickstart-20260101-120000
      tuner stop cifar_asha-20260101-120000 --cluster cluster/on_prem.yaml
      tuner stop cifar_asha-20260101-120000 --service http://127.0.0.1:8380

    The run folder stays, and resume continues the search. The first stop lets running trials continue to their next
    checkpoint. Another one, while they do, ends them at once.
    """
    from tuner.storage.lock import holder

    elsewhere = any(map(options.given, ("cluster", "address", "service")))
    folder = None if elsewhere else _run(name, storage, address or cluster or service)
    if folder is None or (holder(folder) is None and (address or cluster or service)):
        if (team := options.service_at(service, token_file)) is not None:
            _told(name, team.stop(name), as_json)
            return
        address, cluster = options.place(address, cluster)
        _stop_job(name, address, cluster, as_json)
    else:
        _stop_run(folder, as_json)


def _run(name: str, storage: str, cluster: str | None) -> RunFolder | None:
    """The run folder of that name. Raises InputError if there is none, and no cluster that could have such a job."""
    from tuner.errors import InputError
    from tuner.runs.loading import find_run

    try:
        return find_run(name, storage)
    except InputError as error:
        if cluster:
            return None
        raise InputError(f"{error}; a job of a cluster: add --cluster FILE or --jobs-address URL") from None


def _stop_run(folder: RunFolder, as_json: bool) -> None:
    from tuner.actions.stop import stop
    from tuner.runs.diagnose import run_state
    from tuner.runs.loading import load_summary

    was_running = stop(folder, lambda text: echo(text, err=True))
    state, words = run_state(load_summary(folder))
    if as_json:
        print_json({"run": folder.location, "was_running": was_running, "state": state})
    echo(f"{folder.location}: {'stopped; it is' if was_running else 'nothing to stop: it is'} {words}", err=True)


def _stop_job(name: str, address: str | None, cluster: str | None, as_json: bool) -> None:
    from tuner.jobs.client import stop
    from tuner.jobs.cluster_address import ClusterFile, jobs_api

    with jobs_api(address, ClusterFile.read(cluster) if cluster else None) as client:
        was_running = stop(client, name)
    _told(name, was_running, as_json)


def _told(name: str, was_running: bool, as_json: bool) -> None:
    if as_json:
        print_json({"job": name, "was_running": was_running})
    echo(f"job {name}: {'stopped' if was_running else 'nothing to stop: it has ended'}", err=True)
