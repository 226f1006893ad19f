"""The tools: commands of the command line, and two that look after commands in the background."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click

from tuner.errors import EnvironmentFailure, InputError, did_you_mean
from tuner.mcp import schemas
from tuner.mcp.calls import Answer, Calls, Client, failure
from tuner.mcp.verbs import VERBS, Effect, Verb
from tuner.storage.folder import reason

PENDING = "result", "cancel"
"""Tools of the server itself, for commands that continue in the background."""


@dataclass(frozen=True)
class Tool:
    """A tool, as clients see it."""

    name: str
    description: str
    input: schemas.Schema
    output: schemas.Schema
    effect: Effect
    is_remote: bool = False


class Tools:
    """The tools of a server, and their calls.

    Args:
        commands: The commands of the command line, by their names.
        calls: What starts them.
        read_only: Whether only those are served that change nothing.
    """

    def __init__(self, commands: Mapping[str, click.Command], calls: Calls, read_only: bool = False) -> None:
        self._commands, self._calls, self._read_only = commands, calls, read_only
        self._verbs = {name: verb for name, verb in VERBS.items() if verb.effect == "reads" or not read_only}

    @functools.cached_property
    def all(self) -> list[Tool]:
        """Those that are served."""
        served = [_of_command(name, verb, self._command(name)) for name, verb in self._verbs.items()]
        return served if self._read_only else [*served, *_of_the_server()]

    def answer(self, name: str, given: Mapping[str, Any], client: Client) -> Answer:
        """Calls the tool ``name``, and waits for its command.

        Args:
            name: Of the tool.
            given: Its arguments.
            client: Who waits for it.

        Returns:
            The answer, which also tells what is wrong.

        Raises:
            InputError: There is no such tool.
        """
        if name in PENDING and not self._read_only:
            return _answered(lambda: self._pending(name, given, client))
        if name not in self._verbs:
            raise InputError(self._unknown(name))
        return _answered(lambda: self._call(name, given, client))

    def _call(self, name: str, given: Mapping[str, Any], client: Client) -> Answer:
        verb, command = self._verbs[name], self._command(name)
        seconds = _seconds(given) if verb.lasts else None
        given = {key: value for key, value in given.items() if not (verb.lasts and key == schemas.WAIT)}
        words = schemas.words(command, verb, given)
        has_json = any(parameter.name == "as_json" for parameter in command.params)
        run = next((given[key] for key in ("name", "run") if isinstance(given.get(key), str)), None)
        words = ["--json"] * has_json + words
        call = self._calls.start(verb.command or name, words, run=run, lasts=verb.lasts, survives=verb.survives)
        client.has_started(call)
        return self._calls.settle(call, seconds, client)

    def _pending(self, name: str, given: Mapping[str, Any], client: Client) -> Answer:
        if unknown := set(given) - {"call", schemas.WAIT}:
            raise InputError(f"{min(unknown)}: no such argument; allowed: call, {schemas.WAIT}")
        call = self._calls.find(str(given.get("call", "")))
        if name == "cancel":
            call.interrupt()
        return self._calls.settle(call, _seconds(given), client)

    def _command(self, name: str) -> click.Command:
        return self._commands[self._verbs[name].command or name]

    def _unknown(self, name: str) -> str:
        if self._read_only and (name in VERBS or name in PENDING):
            return f"{name} is not served: this server is --read-only"
        return f"no tool {name!r}; {did_you_mean(name, [*self._verbs])}"


def _answered(call: Callable[[], Answer]) -> Answer:
    """The answer of ``call``; an error in the input is one, too."""
    try:
        return call()
    except InputError as error:
        return Answer(failure(str(error), error.exit_status), failed=True)
    except OSError as error:
        text = f"the command cannot be started: {reason(error)}"
        return Answer(failure(text, EnvironmentFailure.exit_status), failed=True)


def _seconds(given: Mapping[str, Any]) -> float:
    seconds = given.get(schemas.WAIT, schemas.WAIT_DEFAULT_S)
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= schemas.WAIT_MOST_S:
        raise InputError(f"{schemas.WAIT}: {seconds!r}: give seconds from 0 to {schemas.WAIT_MOST_S}")
    return float(seconds)


def _of_command(name: str, verb: Verb, command: click.Command) -> Tool:
    description = "\n\n".join([*_paragraphs(command.help or ""), *filter(None, [verb.note, _lasting(verb)])])
    output = schemas.output_schema(verb, verb.command or name)
    return Tool(name, description, schemas.input_schema(command, verb), output, verb.effect, verb.is_remote)


def _lasting(verb: Verb) -> str:
    if not verb.lasts:
        return ""
    after = "also after the end of this server" if verb.survives else "until the end of this server"
    return (
        f"It may last. After {schemas.WAIT} seconds this returns a call that continues in the background, {after}: "
        f"result waits for its document, and cancel interrupts it."
    )


def _paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a help text, without examples for a shell."""
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.replace("\b", "").strip().splitlines()
        if lines and lines[0] != "Example:":
            yield "\n".join(lines) if "\b" in paragraph else " ".join(map(str.strip, lines))


def _of_the_server() -> Iterator[Tool]:
    call = {"type": "string", "description": "The id of the call, as the tool that started it returned it."}
    given = {
        "type": "object",
        "properties": {"call": call, schemas.WAIT: schemas.wait_property()},
        "required": ["call"],
        "additionalProperties": False,
    }
    told = "the document of its command, or that it still runs."
    yield Tool("result", f"Wait for a call that continues in the background: {told}", given, _ANY, "reads")
    interrupts = "Interrupt a call that continues in the background, as Ctrl-C does, and wait for its end"
    yield Tool("cancel", f"{interrupts}: {told}", given, _ANY, "replaces")


_ANY: schemas.Schema = {"type": "object"}
