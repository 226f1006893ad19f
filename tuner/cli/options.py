"""Options that several verbs share."""

from __future__ import annotations

import json
from typing import Any

import click

from tuner.storage import STORAGE

experiment_file = click.argument("file", metavar="FILE")
run_argument = click.argument("run_", metavar="RUN")
overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="A.B=VALUE",
    help="Override a key of the file; VALUE is YAML. Repeatable.",
)
storage = click.option(
    "--storage",
    default=STORAGE,
    show_default=True,
    metavar="DIR",
    help="Folder or URI (s3://…) that holds the run folders.",
)
address = click.option(
    "--address", metavar="ADDR", help="A running Ray cluster (auto, or host:port); this machine without it."
)
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


def print_json(value: Any) -> None:
    """The result of a verb, alone on stdout."""
    click.echo(json.dumps(value, indent=2, default=repr))
