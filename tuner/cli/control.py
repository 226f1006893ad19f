"""``control RUN COMMAND``: change a search while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tuner.cli import complete, options
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@click.argument("do", metavar="COMMAND", shell_complete=complete.commands)
@click.argument("words", metavar="[ARGUMENT]...", nargs=-1, shell_complete=complete.trials)
@options.storage
@options.as_json
def command(run_: str, do: str, words: tuple[str, ...], storage: str, as_json: bool) -> None:
    """Change a search while it runs, here or on another host that sees its run folder.

    \b
    Commands:
      stop-trial TRIAL  end a trial at its next report; it keeps its checkpoint
      pause             pause each trial at its next checkpoint, and free its resources
      continue          continue a paused search
      slots N           let at most N trials run at once; slots none: as many as fit

    \b
    Example:
      tuner control runs/quickstart-20260101-120000 stop-trial 5

    TRIAL is the id or the number of a trial. The search answers within seconds, and journals who commanded what.

    Exit status: 0 done; 2 refused, with the reason; 4 the search does not answer.
    """
    from tuner.actions.control import command as sent
    from tuner.errors import InputError
    from tuner.runs.loading import find_run

    folder = find_run(run_, storage)
    outcome = sent(folder, do, arguments(do, words))
    if not outcome.done:
        raise InputError(f"{do}: refused: {outcome.reason}")
    if as_json:
        print_json({"run": folder.location} | outcome.as_json())
    touched = f": trial {', '.join(outcome.trials)}" if outcome.trials else ""
    echo(f"{folder.location}: {do}: done{touched}", err=True)


def arguments(do: str, words: Sequence[str]) -> dict[str, Any]:
    """The arguments of a command as the words after it give them. Raises InputError if these make no sense."""
    from tuner.errors import InputError

    match do, words:
        case ("stop-trial", [trial]):
            return {"trial": trial}
        case ("slots", ["none"]):
            return {"trials": None}
        case ("slots", [number]) if number.isdecimal():
            if int(number) == 0:
                raise InputError("slots 0: no trial could run; to let all of them wait: pause")
            return {"trials": int(number)}
        case (_, []):
            return {}
    raise InputError(f"{do}: {' '.join(words)!r} are not its arguments; tuner control --help shows them")
