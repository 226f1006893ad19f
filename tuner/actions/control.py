"""Commands to a search that runs, in another process or on another host: sent, and answered by its control loop."""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import EnvironmentFailure, InputError
from tuner.runs.commands import Command, discard, send
from tuner.runs.diagnose import run_state
from tuner.runs.journal import JournalReader
from tuner.runs.loading import load_summary
from tuner.runs.results import ResultSet, how_to_continue
from tuner.search.orders import arguments_of
from tuner.spec.quantities import format_duration
from tuner.storage.folder import RunFolder
from tuner.storage.lock import holder
from tuner.trainable.own_loop import REFERENCE as OWN_LOOP

WAIT_S = 60.0
"""How long the answer of a search is waited for. Its control loop looks for commands once a second."""

_LOOK_EVERY_S = 0.1
_LATE_S = 2.0
"""How long a search that has just read a command may take to answer it."""


@dataclass(frozen=True)
class Outcome:
    """What came of a command."""

    id: str
    """Of the command, by which the journal names it."""
    do: str
    done: bool | None
    """Whether it was carried out; None if the answer was not waited for."""
    reason: str = ""
    """Why it was refused, in one line."""
    trials: tuple[str, ...] = ()
    """The trials that it made or touched."""

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "do": self.do, "done": self.done, "reason": self.reason, "trials": list(self.trials)}


def command(
    folder: RunFolder,
    do: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    by: str | None = None,
    wait_s: float = WAIT_S,
) -> Outcome:
    """Sends a command to the search that runs in ``folder``, and waits for its answer.

    Args:
        folder: The run folder.
        do: The kind of the command, such as ``stop-trial``.
        arguments: Those of its kind (`tuner.search.orders.KINDS`).
        by: Who commands it; None: this user on this host.
        wait_s: Seconds to wait for the answer at most; 0 sends the command and does not wait. Then no search need run
            yet: the next one in this folder carries it out.

    Returns:
        What came of it. A refusal is one of the outcomes.

    Raises:
        InputError: There is no such command, an argument is wrong, or no process works on the run.
        EnvironmentFailure: The search does not answer in time; then the command is taken back.

    Example:
        >>> import tuner
        >>> from tuner.actions.control import command
        >>> from tuner.storage.folder import RunFolder
        >>> try:
        ...     command(RunFolder.at("runs/q"), "pause")
        ... except tuner.errors.InputError as error:
        ...     print(error)
        pause: runs/q: no process works on this run: the search came to its end; a longer one: ...
    """
    given = dict(arguments or {})
    arguments_of(do, given)
    if wait_s and holder(folder) is None:
        raise InputError(f"{do}: {_why_nobody_answers(load_summary(folder))}")
    reader = JournalReader.at_end(folder)
    sent = send(folder, do, by or sender(), given)
    return _answer(folder, reader, sent, wait_s) if wait_s else Outcome(sent.id, do, None)


def sender() -> str:
    """This user on this host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user in this container
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def _why_nobody_answers(results: ResultSet) -> str:
    """Why no search carries a command out, and what does."""
    location = results.folder.location
    if results.spec.get("trainable") == OWN_LOOP:
        return f"{location}: the loop over its trials is your own, and takes no commands"
    state, _ = run_state(results)
    if state == "finished":
        longer = f"python -m tuner extend {results.folder.quoted}"
        return f"{location}: no process works on this run: the search came to its end; a longer one: {longer}"
    return f"{location}: no process works on this run; to continue it: {how_to_continue(results)}"


def _answer(folder: RunFolder, reader: JournalReader, sent: Command, wait_s: float) -> Outcome:
    """What the journal tells of the command. Raises as `command`."""
    give_up = time.monotonic() + wait_s
    while (found := _told(reader, sent)) is None:
        ended = holder(folder) is None
        if ended or time.monotonic() > give_up:
            found = _told(reader, sent) or _taken_back(folder, reader, sent)
            break
        time.sleep(_LOOK_EVERY_S)
    if found:
        return found
    if ended:
        raise InputError(f"{sent.do}: {_why_nobody_answers(load_summary(folder))}")
    waited = f"{folder.location}: the search has not answered within {format_duration(wait_s)}"
    raise EnvironmentFailure(
        f"{sent.do}: {waited}, and the command was taken back: it may be starting, or stand still: "
        f"python -m tuner status {folder.quoted}"
    )


def _taken_back(folder: RunFolder, reader: JournalReader, sent: Command) -> Outcome | None:
    """Takes the command back; its answer, if the search had read it just before."""
    discard(folder, sent)
    until = time.monotonic() + _LATE_S
    while (found := _told(reader, sent)) is None and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
    return found


def _told(reader: JournalReader, sent: Command) -> Outcome | None:
    """The answer, if the journal has it by now."""
    for event in reader.new():
        if event["what"] == "commanded" and event["id"] == sent.id:
            return Outcome(sent.id, sent.do, event["done"], event["reason"], tuple(event["trials"]))
    return None
