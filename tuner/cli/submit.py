"""``submit FILE``: run a search on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import options, remote
from tuner.cli.output import echo, print_json

if TYPE_CHECKING:
    from tuner.jobs.code_bundle import Code
    from tuner.service.client import Service


@click.command()
@options.experiment_file
@options.overrides
@options.option("--name", metavar="N", help="Name of the job and of its run; by default the experiment's and the time.")
@options.option("--storage", metavar="DIR", help="Storage of the runs: a path that all nodes see, or a URI.")
@options.exclude
@options.include
@options.option("--dry-run", is_flag=True, help="Only list what would travel: size in bytes and path of each file.")
@remote.cluster_or_service
@options.option("--priority", type=int, default=0, help="With --service: searches with a higher one come first.")
@options.as_json
def command(
    file: str,
    overrides: tuple[str, ...],
    name: str | None,
    storage: str | None,
    exclude: tuple[str, ...],
    include: tuple[str, ...],
    dry_run: bool,
    at: remote.Remote,
    priority: int,
    as_json: bool,
) -> None:
    """Run the search of FILE on a cluster, as a job: it continues when this computer is switched off.

    With --service a team's service queues it. Its token is in TUNER_TOKEN, or in the file of --token-file.

    The code below the working directory is sent, without what .gitignore and .tunerignore name, and without data and
    runs.
    Untracked files are refused if they look like secrets. Everybody who can read the cluster's storage can read the
    code; --jobs-address http://… sends it, and Ray's token, unencrypted.

    \b
    Example:
      tuner submit experiments/cifar_asha.yaml --cluster cluster/on_prem.yaml
      tuner submit experiments/cifar_asha.yaml --service http://127.0.0.1:8380
    """
    from tuner.errors import InputError
    from tuner.jobs.client import prepare_submission, submit
    from tuner.jobs.code_bundle import code_of

    if dry_run:
        _list(code_of(Path.cwd().resolve(), exclude, include), as_json)
        return
    if (team := at.service()) is not None:
        if options.given("storage"):
            raise InputError(f"--storage {storage}: a service keeps all runs in its own storage: leave it out")
        remote.print_queued(_queued(team, file, overrides, name, exclude, include, priority), as_json)
        return
    submission = prepare_submission(file, overrides, name, storage, exclude, at.launcher_file, include)
    with at.jobs_api() as client:
        submit(client, submission, lambda text: echo(text, err=True))
    options.print_submission(submission, as_json)


def _queued(
    team: Service,
    file: str,
    overrides: tuple[str, ...],
    name: str | None,
    exclude: tuple[str, ...],
    include: tuple[str, ...],
    priority: int,
) -> dict[str, Any]:
    """The search, as the service shows it. Its experiment is checked here first."""
    from tuner.experiment.reader import load_experiment
    from tuner.jobs.client import checked_file
    from tuner.jobs.code_bundle import code_of
    from tuner.jobs.driver import versions
    from tuner.service.code_store import pack

    project = Path.cwd().resolve()
    experiment = load_experiment(file, overrides)
    code = code_of(project, exclude, include)
    there = checked_file(file, experiment, project, code)
    if code.remark:
        echo(code.remark, err=True)
    bundle = pack(project, code.files)
    return team.submit(file=there, overrides=overrides, code=bundle, name=name, priority=priority, versions=versions())


def _list(code: Code, as_json: bool) -> None:
    """What would travel."""
    sizes = {str(file): file.stat().st_size for file in code.files}
    if as_json:
        print_json({"files": sizes, "left_out": code.left_out})
        return
    for name, length in sizes.items():
        echo(f"{length:>10} {name}")
    total = f"{len(sizes)} files, {sum(sizes.values())} bytes"
    echo("\n".join(filter(None, [total, code.remark])), err=True)
