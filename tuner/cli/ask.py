"""``ask RUN``: the next trial of a search whose trials you run yourself."""

from __future__ import annotations

import json
from typing import Any

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@options.option(
    "--config",
    type=options.Mapping(),
    help="Propose this configuration as the next trial, in place of the searcher's: a mapping, as YAML or JSON.",
)
@options.storage
@options.as_json
def command(run_: str, config: str | None, storage: str, as_json: bool) -> None:
    """Ask a search that begin began for the next trial to run. Each call gives another one; show names the open ones.

    A proposed configuration comes on top of the trials of the budget, and the searcher learns from it too.

    If no trial can start before others report, or the search has come to its end, there is none.

    \b
    Example:
      tuner ask laboratory --json
      tuner ask laboratory --config '{temperature: 55}'
    """
    from tuner.actions.ask_tell import PATIENCE_S, has_ended, reopen
    from tuner.errors import InputError
    from tuner.runs.loading import find_run, load_summary

    folder = find_run(run_, storage)
    try:
        with reopen(folder, patience=PATIENCE_S) as loop:
            trial = loop.ask(new=True) if config is None else loop.propose(_mapping(config))
            ended = trial is None and not loop.open_ids
    except InputError:
        if config is not None or not has_ended(folder):
            raise
        trial, ended = None, True
    if as_json:
        told = {"trial": trial.id, "number": trial.number, "config": trial.config} if trial else {}
        empty = {"trial": None, "number": None, "config": None}
        print_json(
            {"run": load_summary(folder).name} | empty | told | {"step": trial.step if trial else 0, "ended": ended}
        )
    elif trial:
        echo(f"trial {trial.number} {trial.id}" + (f", after report {trial.step}" if trial.step else ""), err=True)
        echo(json.dumps(trial.config, default=repr))
    else:
        echo("the search has come to its end" if ended else "no trial can start before others report", err=True)


def _mapping(config: str) -> dict[str, Any]:
    """The configuration that ``--config`` writes. Raises InputError if it is none."""
    from tuner.errors import InputError
    from tuner.spec.document import describe_type, parse_value

    found = parse_value(config, "--config").value
    if not isinstance(found, dict):
        raise InputError(f"--config: {describe_type(found)}: give a mapping, such as {{lr: 0.1}}")
    return found
