"""The command line: one small file a verb, imported when it is called, so that ``--help`` answers at once."""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
from typing import Any

import click

from tuner.cli.output import echo
from tuner.errors import Interrupted, RayLost, TunerError, did_you_mean
from tuner.redaction import redacted

VERBS = {
    "run": "search, and keep the best trial",
    "resume": "continue a search that did not come to its end",
    "extend": "make a search longer: more trials, epochs or time",
    "retry": "run the failed trials of a search again",
    "validate": "show what a search would do, without starting it",
    "list": "list the runs in a storage folder",
    "show": "show one run and its trials",
    "report": "write a run as one HTML page",
    "compare": "put several runs side by side",
    "why": "say what a live or dead run waits for",
    "ui": "open the MLflow UI on a run, or on all runs in a storage folder",
    "track": "send a run to MLflow, or to where it is tracked",
    "best": "restore the best trial's model and score it",
    "confirm": "train the best configurations again with fresh seeds",
    "export": "write a run as an Optuna study",
    "replay": "run one recorded trial again in this process, and compare it with the record",
    "submit": "run a search on a cluster, as a job that needs nobody to wait for it",
    "jobs": "list the searches that a cluster was given",
    "logs": "show what a job says",
    "stop": "stop a job",
    "fetch": "copy a job's run folder here",
    "doctor": "check this machine, and an experiment on it, before a search",
    "simulate": "search tabulated learning curves in virtual time, and compare searches",
    "table": "write the learning curves of a finished run as a table for simulate",
    "algorithms": "print which search goes with which scheduler",
    "schema": "print the JSON Schema of the experiment file",
}
TRAIN_ELSEWHERE = ("run", "resume", "extend", "retry", "validate", "report")
"""Verbs that import much, and call no training of the user's in this process."""

RARELY = 50_000, 20, 50
"""Thresholds of the garbage collector; as Python sets them, it takes a seventh of the CPU of `validate` with torch."""

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*VERBS]  # not list(): once the verb of that name is imported, `list` is its module here

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        if name in TRAIN_ELSEWHERE:
            gc.set_threshold(*RARELY)
        command = importlib.import_module(f"tuner.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise click.UsageError(f"no such verb {args[0]!r}; {did_you_mean(args[0], [*VERBS])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([*VERBS.items()])


@click.group(cls=_Verbs, context_settings=SETTINGS)
@click.version_option(package_name="tuner")
def cli() -> None:
    """Hyperparameter search on Ray Tune, from one YAML file.

    Example: python -m tuner run experiments/quickstart.yaml
    """


def main() -> None:
    """Runs a verb; an error that tuner raised on purpose is one clear text on stderr and its exit status."""
    try:
        sys.exit(cli.main(prog_name="python -m tuner", standalone_mode=False))
    except TunerError as error:
        echo("\n".join(f"error: {redacted(line)}" for line in str(error).splitlines()), err=True)
        if isinstance(error, RayLost):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(error.exit_status)
        sys.exit(error.exit_status)
    except click.ClickException as error:
        error.show(file=(told := io.StringIO()))
        echo(told.getvalue(), err=True, nl=False)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        echo("interrupted before the first trial: nothing was searched", err=True)
        sys.exit(Interrupted.exit_status)
