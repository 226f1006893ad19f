"""Options that several verbs share."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.output import echo, print_json
from tuner.storage import STORAGE, write_file

if TYPE_CHECKING:
    from tuner.jobs.jobs import Submission

experiment_file = click.argument("file", metavar="FILE")
run_argument = click.argument("run_", metavar="RUN")
overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="A.B=VALUE",
    help="Override a key of the file; VALUE is YAML. Repeatable. "
    "Another search.kind or scheduler.kind keeps the options that both have.",
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
trust = click.option(
    "--trust",
    is_flag=True,
    help="Open the Python objects of a run folder that another user or machine wrote: that can run any code.",
)
job_argument = click.argument("job", metavar="JOB")
jobs_address = click.option(
    "--address", metavar="URL", help="The cluster's dashboard (http://HEAD:8265), or a tunnel to it."
)
exclude = click.option(
    "--exclude", multiple=True, metavar="GLOB", help="What does not travel with a job, such as 'data/*'. Repeatable."
)
include = click.option(
    "--include",
    multiple=True,
    metavar="GLOB",
    help="What travels though it is not in git and looks like a secret or data. Repeatable.",
)
cluster_file = click.option(
    "--cluster", "cluster", metavar="FILE", help="The launcher file of the cluster, whose head is reached by ssh."
)
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


page_file = click.option("-o", "--output", metavar="FILE", help="Where to write the page.")


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
    """Within: ``target`` is written. Raises EnvironmentFailure where that is not possible."""
    from tuner.errors import EnvironmentFailure
    from tuner.storage import reason

    try:
        yield
    except OSError as error:
        raise EnvironmentFailure(
            f"{target} cannot be written: {reason(error)}; choose another file with -o FILE"
        ) from None


def width() -> int | None:
    """Columns of the terminal that stdout is; None where it is none, or does not know."""
    return os.get_terminal_size(sys.stdout.fileno()).columns or None if sys.stdout.isatty() else None


def print_submission(submission: Submission, as_json: bool) -> None:
    """What became a job."""
    if as_json:
        print_json({"job": submission.name, "storage": submission.storage, "files": len(submission.code.files)})
    else:
        echo(submission.name)
