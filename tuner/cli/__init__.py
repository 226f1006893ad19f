"""The command line: one small file a command, imported when it is called, so that ``--help`` answers at once."""

from __future__ import annotations

import copy
import gc
import importlib
import os
import re
import sys
from typing import Any

import click

from tuner.cli import completion, failing
from tuner.cli.groups import FILES, GROUPS, HIDDEN, names
from tuner.errors import Interrupted, RayLost, TunerError, did_you_mean

TRAIN_ELSEWHERE = ("run", "resume", "extend", "retry", "validate", "report")
"""Commands that import much, and call no training of the user's in this process."""

RARELY = 50_000, 20, 50
"""Thresholds of the garbage collector; as Python sets them, it takes a seventh of the CPU of `validate` with torch."""

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "auto_envvar_prefix": "TUNER"}

EPILOG = (
    """Exit statuses: help exit-status. Options from environment variables, such as TUNER_STORAGE: help environment."""
)


class Commands(click.Group):
    """The commands of `tuner.cli.groups`, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands that help shows, group by group."""
        return names()

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command, whose help shows its examples as they are typed here; None if there is none."""
        if name not in (*names(), *HIDDEN):
            return None
        if name in TRAIN_ELSEWHERE:
            gc.set_threshold(*RARELY)
        module = importlib.import_module(f"tuner.cli.{HIDDEN.get(name) or FILES.get(name, name)}")
        command = _as_called(module.command, ctx.find_root().info_name or "tuner", hidden=name in HIDDEN)
        command.name = name
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does, with the nearest name for one that there is not."""
        if args and args[0] not in (*names(), *HIDDEN) and not args[0].startswith("-"):
            raise click.UsageError(f"no such command {args[0]!r}; {did_you_mean(args[0], names())}", ctx)
        return super().resolve_command(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, with the name of this program in the examples."""
        click.Command.format_help_text(_as_called(self, ctx.info_name or "tuner"), ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A section a group."""
        widest = max(map(len, names()))
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(widest), text) for name, text in commands.items()])


def _as_called(command: click.Command, program: str, hidden: bool = False) -> click.Command:
    """``command`` with the name of this program in its examples, which are written with ``tuner``."""
    shown = copy.copy(command)
    shown.hidden = hidden
    shown.help = re.sub(r"(?m)^(\s+)tuner ", rf"\1{program} ", command.help or "")
    return shown


@click.group("tuner", cls=Commands, context_settings=SETTINGS, epilog=EPILOG)
@click.version_option(package_name="tuner")
def cli() -> None:
    """Hyperparameter search on Ray Tune, from Python or from one YAML file.

    \b
    Example:
      tuner init my_search
      tuner run my_search/search.yaml
    """


def main() -> None:
    """Runs a command. An error that tuner raised on purpose is one clear text on stderr and its exit status.

    With ``--json`` it is one JSON document on stdout, too.
    """
    if completion.VARIABLE in os.environ:
        completion.register()
    try:
        sys.exit(cli.main(standalone_mode=False))
    except TunerError as error:
        failing.show(error)
        if isinstance(error, RayLost):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(error.exit_status)
        sys.exit(error.exit_status)
    except click.ClickException as error:
        failing.show_usage(error)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        failing.show(Interrupted("interrupted before the first trial: nothing was searched"), prefix="")
        sys.exit(Interrupted.exit_status)
