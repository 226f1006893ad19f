"""``mcp``: the commands as tools of the Model Context Protocol."""

from __future__ import annotations

import os
import sys

import click

from tuner.cli import options
from tuner.cli.output import echo


@click.command()
@options.option("--read-only", is_flag=True, help="Serve only the tools that change nothing.")
@options.storage
def command(read_only: bool, storage: str) -> None:
    """Serve the commands of tuner as tools of the Model Context Protocol, on stdin and stdout, until stdin is closed.

    A client starts it: an agent, an editor, a program. Its working directory is that of the commands.

    A search continues after the end of the client; list, show and status find it again.

    \b
    Example:
      tuner mcp --read-only
    """
    from tuner import __version__
    from tuner.cli import cli
    from tuner.errors import InputError
    from tuner.installed import how_to_install
    from tuner.mcp.verbs import VERBS

    try:
        from tuner.mcp.server import serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "anyio"):
            raise
        raise InputError(f"tuner mcp needs the package mcp, version 2: {how_to_install('mcp')}") from None
    if sys.stdin.isatty():
        echo(
            "stdin is a terminal: a client of the Model Context Protocol starts this command; Ctrl-C ends it", err=True
        )
    if options.given("storage"):
        os.environ["TUNER_STORAGE"] = storage
    context = click.Context(cli, info_name="tuner")
    names = {verb.command or name for name, verb in VERBS.items()}
    commands = {name: found for name in names if (found := cli.get_command(context, name))}
    serve(commands, __version__, read_only)
