"""``status RUN``: how a search stands, and what its trials wait for."""

from __future__ import annotations

from dataclasses import asdict

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@options.storage
@options.wide
@options.as_json
def command(run_: str, storage: str, wide: bool, as_json: bool) -> None:
    """Show what a live or dead run waits for: the run itself, its last event, and each trial that has not ended.

    \b
    Example:
      tuner status runs/quickstart-20260101-120000
    """
    from tuner.runs.diagnose import explain
    from tuner.runs.loading import find_run, load_latest
    from tuner.visualization.text_tables import format_columns

    verdict = explain(load_latest(find_run(run_, storage)))
    if as_json:
        told = [{"trial": trial.id, "number": trial.number, "why": why} for trial, why in verdict.trials]
        print_json(asdict(verdict) | {"trials": told})
        return
    echo(f"run: {verdict.run}\nlast event: {verdict.last_event}")
    if verdict.trials:
        echo(format_columns([[f"#{trial.number}", trial.id, why] for trial, why in verdict.trials], *options.fit(wide)))
