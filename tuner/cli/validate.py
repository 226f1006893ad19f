"""``validate FILE``: show what a search would do, without starting it."""

from __future__ import annotations

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.command()
@options.experiment_file
@options.overrides
@options.address
@options.as_json
def command(file: str, overrides: tuple[str, ...], address: str | None, as_json: bool) -> None:
    """Check FILE and everything that it names, and print the plan; nothing is started.

    \b
    Example:
      tuner validate experiments/quickstart.yaml
    """
    from tuner.actions.run import validate
    from tuner.plan.describe import description

    plan = validate(file, overrides, address=address)
    if as_json:
        print_json(plan.as_json())
        return
    for heading, text in description(plan):
        echo(f"{heading:<14}{text}")
