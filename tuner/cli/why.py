"""``why RUN``: why a search stands still."""

from __future__ import annotations

from dataclasses import asdict

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@options.storage
@options.as_json
def command(run_: str, storage: str, as_json: bool) -> None:
    """Say what a live or dead run waits for: the run itself, its last event, and each trial that has not ended.

    Example: python -m tuner why runs/quickstart-20260101-120000
    """
    from tuner.loading import find_run, last_known
    from tuner.report.terminal import aligned
    from tuner.why import explain

    verdict = explain(last_known(find_run(run_, storage)))
    if as_json:
        told = [{"trial": trial.id, "number": trial.number, "why": why} for trial, why in verdict.trials]
        print_json(asdict(verdict) | {"trials": told})
        return
    echo(f"run: {verdict.run}\nlast event: {verdict.last_event}")
    if verdict.trials:
        echo(aligned([[f"#{trial.number}", trial.id, why] for trial, why in verdict.trials]))
