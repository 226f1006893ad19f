"""Options that several commands share."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import complete
from tuner.cli.output import echo, print_json
from tuner.storage.folder import STORAGE, write_file

if TYPE_CHECKING:
    from tuner.jobs.client import Submission

FOLDED = 120
"""Columns of a table if stdout is not a terminal: a pipe, a file, the log of a job."""


class Option(click.Option):
    """An option with older spellings, which work and which help does not show."""

    def __init__(self, *names: Any, old: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*names, **settings)
        self._old = old

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Under all its spellings."""
        shown, self.opts = self.opts, [*self.opts, *self._old]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """``TUNER_RUN_STORAGE`` for ``run``; else what sets the option for all commands: ``TUNER_STORAGE``."""
        if not self.allow_from_autoenv or ctx.auto_envvar_prefix is None:
            return click.Parameter.resolve_envvar_value(self, ctx)
        word = max(self.opts, key=len).strip("-").replace("-", "_").upper()
        return os.environ.get(f"{ctx.auto_envvar_prefix}_{word}") or click.Parameter.resolve_envvar_value(self, ctx)


option = functools.partial(click.option, cls=Option)


class Mapping(click.types.StringParamType):
    """A mapping, as YAML or JSON. The command reads it."""

    name = "yaml"


experiment_file = click.argument("file", metavar="FILE", shell_complete=complete.experiments)
run_argument = click.argument("run_", metavar="RUN", shell_complete=complete.runs)
job_argument = click.argument("job", metavar="JOB", shell_complete=complete.jobs)
overrides = option(
    "--set",
    "overrides",
    multiple=True,
    metavar="A.B=VALUE",
    shell_complete=complete.keys,
    help="Override a key of the file; VALUE is YAML. Repeatable. "
    "Another search.kind or scheduler.kind keeps the options that both have.",
)
storage = option(
    "--storage",
    envvar="TUNER_STORAGE",
    show_envvar=True,
    default=STORAGE,
    show_default=True,
    metavar="DIR",
    shell_complete=complete.folders,
    help="Folder or URI (s3://…) that holds the run folders.",
)
address = option(
    "--ray-address",
    "address",
    old=["--address"],
    envvar="TUNER_RAY_ADDRESS",
    show_envvar=True,
    metavar="ADDR",
    help="A running Ray cluster (auto, or host:port); this machine without it.",
)
trust = option(
    "--trust",
    is_flag=True,
    help="Open the Python objects of a run folder that another user or machine wrote: that can run any code.",
)
exclude = option(
    "--exclude", multiple=True, metavar="GLOB", help="What does not travel with a job, such as 'data/*'. Repeatable."
)
include = option(
    "--include",
    multiple=True,
    metavar="GLOB",
    help="A file to send although it is not in git and looks like a secret or data. Repeatable.",
)
as_json = option(
    "--json",
    "as_json",
    is_flag=True,
    envvar="TUNER_JSON",
    allow_from_autoenv=False,
    help="One JSON document on stdout, errors too.",
)
wide = option("--wide", is_flag=True, help="Do not cut or fold long lines.")
page_file = option("-o", "--output", metavar="FILE", shell_complete=complete.files, help="Where to write the page.")


def given(name: str) -> bool:
    """Whether the command line itself sets the parameter ``name``, not its default and not the environment."""
    return click.get_current_context().get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE


def write_output(target: str, data: bytes, example: str = "report.html") -> None:
    """Writes the file that ``-o`` names. Raises InputError for a folder, EnvironmentFailure where it cannot be written.

    ``example``: the name of such a file.
    """
    from tuner.errors import InputError

    if Path(target).is_dir():
        raise InputError(f"-o {target}: that is a folder: name a file in it, such as {target.rstrip('/')}/{example}")
    with writing(target):
        write_file(target, data)


@contextlib.contextmanager
def writing(target: str) -> Iterator[None]:
    """Within: ``target`` is written. Raises EnvironmentFailure if that is not possible."""
    from tuner.errors import EnvironmentFailure
    from tuner.storage.folder import reason

    try:
        yield
    except OSError as error:
        raise EnvironmentFailure(
            f"{target} cannot be written: {reason(error)}; choose another file with -o FILE"
        ) from None


def fit(wide: bool) -> tuple[int | None, bool]:
    """Columns that a table may have, None for any number; and whether a cell that is too long takes several lines.

    On a terminal it is cut instead, so that a row is a line.
    """
    if wide:
        return None, False
    columns = width()
    return columns or FOLDED, columns is None


def width() -> int | None:
    """Columns of the terminal that stdout is; None if it is none, or does not know."""
    return os.get_terminal_size(sys.stdout.fileno()).columns or None if sys.stdout.isatty() else None


def print_submission(submission: Submission, as_json: bool) -> None:
    """What became a job."""
    if as_json:
        print_json({"job": submission.name, "storage": submission.storage, "files": len(submission.code.files)})
    else:
        echo(submission.name)
