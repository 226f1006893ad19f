"""Which commands a program may call as tools, and what each of them does to the world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Effect = Literal["reads", "adds", "replaces"]
"""``reads`` changes nothing; ``adds`` makes something new; ``replaces`` may end or overwrite what is there."""

PEOPLE_ONLY = ("as_json", "wide", "trust", "debug", "follow", "service", "token_file")
"""Parameters that no tool has: the form of the output, consent that a person gives, waiting without end, and where a
token is sent. The environment of the server may name a service."""


@dataclass(frozen=True)
class Verb:
    """A command that is served."""

    effect: Effect
    lasts: bool = False
    """Whether it can take minutes or hours: its call returns before, and the tool ``result`` has its document."""
    survives: bool = False
    """Whether it continues after the end of the server; else it is ended with it."""
    is_remote: bool = False
    """Whether it speaks with a server elsewhere."""
    command: str = ""
    """The command, if the tool has another name."""
    without: tuple[str, ...] = ()
    """Its parameters that the tool does not have."""
    note: str = ""
    """What a program should know besides the command's help."""


_SEARCH = Verb("adds", lasts=True, survives=True)

VERBS = {
    "list": Verb("reads"),
    "show": Verb("reads", note="Large searches have much to show: brief leaves out all trials but the best ones."),
    "status": Verb("reads"),
    "compare": Verb("reads", without=("output",)),
    "validate": Verb("reads", note="It imports the training code."),
    "doctor": Verb("reads", without=("file", "overrides"), note="It checks this machine."),
    "schema": Verb("reads"),
    "algorithms": Verb("reads"),
    "jobs": Verb("reads", is_remote=True),
    "logs": Verb("reads", is_remote=True),
    "init": Verb("adds"),
    "doctor_experiment": Verb("adds", lasts=True, command="doctor", note="It runs three steps of a trial."),
    "run": _SEARCH,
    "resume": _SEARCH,
    "extend": _SEARCH,
    "retry": _SEARCH,
    "confirm": _SEARCH,
    "begin": Verb("adds"),
    "ask": Verb("adds", note="Open trials are those that show calls paused, with the reason interrupted."),
    "tell": Verb("adds"),
    "control": Verb("replaces"),
    "stop": Verb("replaces", is_remote=True),
    "best": Verb("adds", lasts=True, note="It runs the training code. show has the best trial without that."),
    "replay": Verb("adds", lasts=True),
    "simulate": Verb("adds", lasts=True),
    "report": Verb("replaces"),
    "export": Verb("replaces"),
    "sync": Verb("replaces", is_remote=True),
    "submit": Verb("adds", is_remote=True),
    "fetch": Verb("replaces", is_remote=True),
}
"""By the name of the tool."""

LEFT_OUT = {
    "ui": "a server for a person's browser, which runs until Ctrl-C",
    "watch": "a page for a person's browser, which runs until Ctrl-C",
    "serve": "a server, which an administrator starts",
    "token": "it gives away secrets",
    "mcp": "this server",
    "completion": "for a person's shell",
    "help": "for people: each tool has its own description",
}
"""Commands that are not served, each with the reason."""
