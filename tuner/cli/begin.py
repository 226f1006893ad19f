"""``begin FILE``: begin a search whose trials you run yourself."""

from __future__ import annotations

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.command()
@options.experiment_file
@options.overrides
@options.option("--name", metavar="N", help="Name of the run folder; by default the experiment's name and the time.")
@options.storage
@options.as_json
def command(file: str, overrides: tuple[str, ...], name: str | None, storage: str, as_json: bool) -> None:
    """Begin the search of FILE with trials that you run yourself: ask for them, and tell what they report.

    The trainable of FILE is not used, and Ray is not started. Everything else is as in every search: searcher,
    scheduler, budget, journal and run folder.

    \b
    Example:
      tuner begin laboratory.yaml --name laboratory
      tuner ask laboratory --json
      tuner tell laboratory 1 yield_percent=71.2 --finish
    """
    from tuner.actions.ask_tell import begin
    from tuner.experiment.reader import load_experiment
    from tuner.trainable.own_loop import REFERENCE

    experiment = load_experiment(file, [*overrides, f"trainable={REFERENCE}"])
    with begin(experiment, name=name, storage=storage) as loop:
        results = loop.results
    if as_json:
        trials = results.provenance["trials"]
        print_json({"run": results.name, "folder": results.folder.location, "trials": trials})
    else:
        echo(results.folder.location)
