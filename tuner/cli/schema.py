"""``schema``: the JSON Schema of the experiment file, and of what commands print."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from tuner.cli import options
from tuner.cli.output import print_json

ALL = "all"


class Documented(click.ParamType[str]):
    """A command whose ``--json`` has a schema."""

    name = "command"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """Those that begin so."""
        from tuner.documents import DOCUMENTS

        return [CompletionItem(name) for name in (*DOCUMENTS, ALL) if name.startswith(incomplete)]


@click.command()
@options.option(
    "--command",
    "name",
    type=Documented(),
    metavar="NAME",
    help="Of the document that this command prints with --json; error: of any command that fails; all: of every one.",
)
def command(name: str | None) -> None:
    """Print the JSON Schema of the experiment file, for editors; or of what a command prints with --json, for programs.

    \b
    Example:
      tuner schema > experiments/schema.json
      tuner schema --command show
    """
    if name is None:
        from tuner.experiment.schema import experiment_schema

        print_json(experiment_schema())
        return
    from tuner.documents import DOCUMENTS, schema, schemas
    from tuner.errors import InputError, did_you_mean

    if name == ALL:
        print_json(schemas())
    elif name in DOCUMENTS:
        print_json(schema(name))
    else:
        raise InputError(f"--command {name}: prints no document; {did_you_mean(name, [*DOCUMENTS, ALL])}")
