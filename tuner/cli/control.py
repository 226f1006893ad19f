"""``control RUN COMMAND``: change a search while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tuner.cli import complete, options, remote
from tuner.cli.output import echo, print_json


@click.command()
@options.run_argument
@click.argument("do", metavar="COMMAND", shell_complete=complete.commands)
@click.argument("words", metavar="[ARGUMENT]...", nargs=-1, shell_complete=complete.trials)
@options.option("--checkpoint", is_flag=True, help="A clone starts from the latest checkpoint of its trial.")
@options.storage
@remote.service
@options.as_json
def command(
    run_: str, do: str, words: tuple[str, ...], checkpoint: bool, storage: str, at: remote.Remote, as_json: bool
) -> None:
    """Change a search while it runs: here, on another host that sees its run folder, or at a team's service.

    \b
    Commands:
      stop-trial TRIAL            end a trial at its next report; it keeps its checkpoint
      keep-trial TRIAL            let the scheduler stop a trial no more
      add NAME=VALUE ...          run a configuration next
      clone TRIAL NAME=VALUE ...  run a trial once more, changed
      budget LIMIT=VALUE ...      set new totals: trials=50, or trials=+20 for 20 more
      space NAME=DOMAIN ...       narrow the space of later suggestions: lr.loguniform=[1e-3,1e-2]
      pause                       pause each trial at its next checkpoint, and free its resources
      continue                    continue a paused search
      slots N                     let at most N trials run at once; slots none: as many as fit

    \b
    Example:
      tuner control runs/quickstart-20260101-120000 clone 5 lr=0.01 --checkpoint
      tuner control quickstart-20260101-120000 pause --service http://127.0.0.1:8380

    TRIAL is the id or the number of a trial; VALUE is YAML. Limits are trials, epochs, wall_clock, gpu_hours and cost.
    The search answers within seconds, and journals who commanded what.

    Exit status: 0 done; 2 refused, with the reason; 4 the search does not answer.
    """
    from tuner.errors import InputError

    given = arguments(do, words)
    if checkpoint:
        given["checkpoint"] = True
    run, outcome = _sent(run_, storage, at, do, given)
    if not outcome["done"]:
        raise InputError(f"{do}: refused: {outcome['reason']}")
    if as_json:
        print_json({"run": run, "do": do} | outcome)
    touched = f": trial {', '.join(outcome['trials'])}" if outcome["trials"] else ""
    echo(f"{run}: {do}: done{touched}", err=True)


def _sent(name: str, storage: str, at: remote.Remote, do: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The run, and what came of the command."""
    from tuner.actions.control import command as sent

    folder = remote.local_run(name, storage, at, "--service URL")
    if folder is not None:
        return folder.location, sent(folder, do, arguments).as_json()
    service = at.service()
    assert service is not None  # else there is no other place
    return name, service.command(name, do, **arguments)


def arguments(do: str, words: Sequence[str]) -> dict[str, Any]:
    """The arguments of a command as the words after it give them. Raises InputError if these make no sense."""
    from tuner.errors import InputError
    from tuner.spec.configuration import nested

    match do, words:
        case ("stop-trial" | "keep-trial", [trial]):
            return {"trial": trial}
        case ("add", [_, *_]):
            return {"config": _named(do, words)}
        case ("clone", [trial, *changes]):
            return {"trial": trial, "changes": _named(do, changes)}
        case ("budget", [_, *_]):
            return _named(do, words)
        case ("space", [_, *_]):
            return {"search_space": nested(_named(do, words))}
        case ("slots", ["none"]):
            return {"trials": None}
        case ("slots", [number]) if number.isdecimal():
            if int(number) == 0:
                raise InputError("slots 0: no trial could run; to let all of them wait: pause")
            return {"trials": int(number)}
        case (_, []):
            return {}
    raise InputError(f"{do}: {' '.join(words)!r} are not its arguments; tuner control --help shows them")


def _named(do: str, words: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` by name. Raises InputError for a word that is none."""
    from tuner.errors import InputError
    from tuner.spec.document import parse_value

    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InputError(f"{do}: {word!r}: write NAME=VALUE")
        # +20 is a number in YAML, and here what is added
        found[name] = value if value.startswith("+") else parse_value(value, word).value
    return found
