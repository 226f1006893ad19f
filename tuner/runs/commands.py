"""Commands to a search that runs: files in its run folder, each of which its control loop carries out and journals.

A command is sent by another process, which may be on another machine: all that both must see is the storage. The
control loop journals a command together with what came of it, and only then deletes its file. So a search that is
killed between the two finds the command in its journal, and does not carry it out again.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tuner.runs.file_shapes import MAX_CONFIG_BYTES, MAX_TIMESTAMP, checked
from tuner.storage.folder import RunFolder
from tuner.storage.untrusted_json import parsed

COMMANDS = "commands"
"""The folder of commands that wait, in the run folder."""

LIMIT = "slots"
"""The command by which the queue of a service limits a search. Its users send ``pause``."""

_ID, _MOST_TEXT = r"[0-9]{20}-[0-9a-f]{8}", 200


@dataclass(frozen=True)
class Command:
    """An order to a running search."""

    id: str
    """Ids sort by the time at which their commands were sent."""
    do: str
    """Its kind, such as ``stop-trial``."""
    by: str
    """Who sent it."""
    sent: float
    """Unix time, in seconds."""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Commanded(Command):
    """A command, and what came of it, as the journal has it."""

    done: bool = False
    """Whether it was carried out."""
    reason: str = ""
    """Why it was refused."""
    trials: tuple[str, ...] = ()
    """The trials that it made or touched."""


class _Command(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    id: str = Field(pattern=f"^{_ID}$")
    do: str = Field(max_length=_MOST_TEXT)
    by: str = Field(max_length=_MOST_TEXT)
    sent: float = Field(ge=0, le=MAX_TIMESTAMP)
    arguments: dict[str, Any]


def send(folder: RunFolder, do: str, by: str, arguments: Mapping[str, Any]) -> Command:
    """Leaves a command for the search that runs in ``folder``. Raises OSError if the folder cannot be written."""
    now = time.time()
    command = Command(f"{time.time_ns():020d}-{secrets.token_hex(4)}", do, by[:_MOST_TEXT], now, dict(arguments))
    waiting = folder / COMMANDS
    waiting.filesystem.create_dir(waiting.path, recursive=True)
    waiting.write(_file(command), json.dumps(asdict(command)).encode())
    return command


def waiting_commands(folder: RunFolder) -> tuple[list[Command], list[str]]:
    """The commands that were sent and not carried out, in the order in which they were sent; and unreadable files.

    Raises OSError if the storage fails.
    """
    found, unreadable = [], []
    for name in (folder / COMMANDS).files():
        try:
            told = checked(_Command, parsed((folder / COMMANDS).read(name, MAX_CONFIG_BYTES)))
        except FileNotFoundError:  # its sender has taken it back
            continue
        except (OSError, ValueError):
            unreadable.append(name)
            continue
        command = Command(told.id, told.do, told.by, told.sent, told.arguments)
        if name == _file(command):
            found.append(command)
        else:
            unreadable.append(name)
    return sorted(found, key=lambda command: command.id), unreadable


def discard(folder: RunFolder, command: Command) -> bool:
    """Deletes the file of a command; whether it was there. Raises OSError if the storage fails."""
    waiting = folder / COMMANDS
    if not waiting.exists(_file(command)):
        return False
    try:
        waiting.filesystem.delete_file((waiting / _file(command)).path)
    except FileNotFoundError:
        return False
    return True


def trial_of(command: Command) -> str:
    """The id of the trial that the command makes: the same however often it is carried out."""
    return command.id.rpartition("-")[2]


def _file(command: Command) -> str:
    return f"{command.id}.json"
