"""``schema``: the JSON Schema of the experiment file."""

from __future__ import annotations

import click

from tuner.cli.output import print_json


@click.command()
def command() -> None:
    """Print the JSON Schema of the experiment file, for editors.

    \b
    Example:
      tuner schema > experiments/schema.json
    """
    from tuner.experiment.schema import experiment_schema

    print_json(experiment_schema())
