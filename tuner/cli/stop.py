"""``stop RUN``, ``stop JOB``: stop a search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tuner.cli import complete, options, remote
from tuner.cli.output import echo, print_json

if TYPE_CHECKING:
    from tuner.storage.folder import RunFolder


@click.command()
@click.argument("name", metavar="RUN|JOB", shell_complete=complete.jobs)
@options.storage
@remote.cluster_or_service
@options.as_json
def command(name: str, storage: str, at: remote.Remote, as_json: bool) -> None:
    """Stop a search of this machine as Ctrl-C does, and wait for its end; or stop a job of a cluster or a service.

    \b
    Example:
      tuner stop runs/quickstart-20260101-120000
      tuner stop cifar_asha-20260101-120000 --cluster cluster/on_prem.yaml
      tuner stop cifar_asha-20260101-120000 --service http://127.0.0.1:8380

    The run folder stays, and resume continues the search. The first stop lets running trials continue to their next
    checkpoint. Another one, while they do, ends them at once.
    """
    places = "--cluster FILE, --jobs-address URL or --service URL"
    if (folder := remote.local_run(name, storage, at, places)) is not None:
        _stop_run(folder, as_json)
    elif (team := at.service()) is not None:
        _told(name, team.stop(name), "asked to stop; `tuner jobs` says when it has", as_json)
    else:
        _stop_job(name, at, as_json)


def _stop_run(folder: RunFolder, as_json: bool) -> None:
    from tuner.actions.stop import stop
    from tuner.runs.diagnose import run_state
    from tuner.runs.loading import load_summary

    was_running = stop(folder, lambda text: echo(text, err=True))
    state, words = run_state(load_summary(folder))
    if as_json:
        print_json({"run": folder.location, "was_running": was_running, "state": state})
    echo(f"{folder.location}: {'stopped; it is' if was_running else 'nothing to stop: it is'} {words}", err=True)


def _stop_job(name: str, at: remote.Remote, as_json: bool) -> None:
    from tuner.jobs.client import stop

    with at.jobs_api() as client:
        was_running = stop(client, name)
    _told(name, was_running, "stopped", as_json)


def _told(name: str, was_running: bool, done: str, as_json: bool) -> None:
    if as_json:
        print_json({"job": name, "was_running": was_running})
    echo(f"job {name}: {done if was_running else 'nothing to stop: it has ended'}", err=True)
