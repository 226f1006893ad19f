"""The commands of the command line, as the server gets them."""

from __future__ import annotations

import click

from tuner.cli import cli
from tuner.cli.groups import names


def commands() -> dict[str, click.Command]:
    context = click.Context(cli, info_name="tuner")
    found = {name: cli.get_command(context, name) for name in names()}
    return {name: command for name, command in found.items() if command is not None}


def has_json(command: click.Command) -> bool:
    return any(parameter.name == "as_json" for parameter in command.params)
