"""The only way from a command to the terminal."""

from __future__ import annotations

import json
from typing import Any

import click

from tuner.printable import printable


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Writes ``text`` to stdout (``err``: to stderr), without what a terminal would obey."""
    click.echo(printable(text), err=err, nl=nl)  # noqa: TID251 - what the others are to call


def print_json(value: Any) -> None:
    """The result of a command, alone on stdout."""
    echo(json.dumps(value, indent=2, default=repr).replace("\x7f", "\\u007f"))  # the one control that JSON lets pass
