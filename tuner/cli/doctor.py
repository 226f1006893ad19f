"""``doctor [FILE]``: is this machine fit for a search, and does an experiment run on it?"""

from __future__ import annotations

from dataclasses import asdict

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json


@click.command()
@click.argument("file", metavar="[FILE]", required=False, shell_complete=complete.experiments)
@options.overrides
@options.storage
@options.as_json
def command(file: str | None, overrides: tuple[str, ...], storage: str, as_json: bool) -> None:
    """Check this machine; with FILE, an experiment, also run one trial of it for three steps. Nothing is left behind.

    \b
    Example:
      tuner doctor experiments/quickstart.yaml

    Exit status: 0 no error; 2 the experiment has one; 4 the machine, or the data, has one.
    """
    if overrides and file is None:
        raise click.UsageError("--set overrides a key of an experiment: name its FILE too")
    from tuner.doctor import examine, exit_status

    findings = []
    for finding in examine(file, overrides, storage=storage):
        findings.append(finding)
        if not as_json:
            echo(str(finding))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    click.get_current_context().exit(exit_status(findings))
