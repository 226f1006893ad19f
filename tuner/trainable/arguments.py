"""A configuration as the command-line arguments of a script."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

Style = Literal["one", "words", "repeated", "flag"]
"""How a list is written: joined by commas, as words, with the spelling repeated. A flag has no value."""

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
"""What argparse takes for a value although it begins with a dash."""


@dataclass(frozen=True)
class Argument:
    """One argument that a script declares."""

    names: frozenset[str]
    """What a parameter may be called to be this argument, in the form of `_normal`."""
    shown: str
    """Its name in messages."""
    spelling: str = ""
    """``--lr``; empty for a positional argument."""
    style: Style = "one"
    on: str = ""
    """Of a flag: how True is written; empty: not at all."""
    off: str = ""
    """Of a flag: how False is written; empty: not at all."""
    false: str = "False"
    """The text for False if it is not a flag."""


def argv(values: Iterable[tuple[str, Any]], declared: Sequence[Argument] = ()) -> list[str]:
    """The arguments for parameters by dotted name, positional ones first.

    A parameter that is not ``declared`` becomes ``--name value``, a True ``--name``, a list several words. A parameter
    that is None or False is then left out.
    """
    positional: list[str] = []
    options: list[str] = []
    for name, value in values:
        argument = find(name, declared) or _undeclared(name, value)
        if value is not None and value != {}:
            (options if argument.spelling or argument.style == "flag" else positional).extend(_written(argument, value))
    return positional + options


def _undeclared(name: str, value: Any) -> Argument:
    if isinstance(value, bool):
        return Argument(frozenset(), name, style="flag", on=f"--{name}")
    return Argument(frozenset(), name, f"--{name}", "words")


def find(name: str, declared: Sequence[Argument]) -> Argument | None:
    """The argument that the parameter ``name`` becomes: dashes, dots and underscores are the same."""
    exact = (argument for argument in declared if argument.spelling == f"--{name}" and argument.style != "flag")
    return next(exact, None) or next((argument for argument in declared if _normal(name) in argument.names), None)


def _written(argument: Argument, value: Any) -> list[str]:
    if argument.style == "flag":
        if isinstance(value, bool):
            return [spelling] if (spelling := argument.on if value else argument.off) else []
        return [f"{argument.on or argument.off}={_text(value)}"]  # the parser says that it takes no value
    several = isinstance(value, list | tuple)
    texts = [argument.false if item is False else _text(item) for item in (value if several else [value])]
    if several and argument.style == "one":
        texts = [",".join(texts)]
    if not argument.spelling:
        return texts
    if several and argument.style == "words":
        return [argument.spelling, *texts]
    return [word for text in texts for word in _option(argument.spelling, text)]


def _option(spelling: str, text: str) -> list[str]:
    as_option = text.startswith("-") and not _NEGATIVE.fullmatch(text)
    return [f"{spelling}={text}"] if as_option else [spelling, text]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value < 0 and "e" in repr(value):
        return format(Decimal(repr(value)), "f")  # argparse takes -1e-05 for an option
    return json.dumps(value, default=repr) if isinstance(value, dict | list | tuple) else str(value)


def _normal(name: str) -> str:
    return re.sub(r"[-.]", "_", name)


def of_argparse(parser: argparse.ArgumentParser) -> list[Argument]:
    """The arguments of ``parser``."""
    actions = [action for action in parser._actions if action.dest != argparse.SUPPRESS]
    flags = [action for action in actions if isinstance(action, _FLAGS)]
    found = [_of_action(action) for action in actions if not isinstance(action, (*_FLAGS, *_OTHERS))]
    return found + list(_switches(flags))


_FLAGS = (argparse._StoreTrueAction, argparse._StoreFalseAction, argparse.BooleanOptionalAction)
_OTHERS = (argparse._HelpAction, argparse._VersionAction, argparse._SubParsersAction)


def _of_action(action: argparse.Action) -> Argument:
    spellings = action.option_strings
    several = action.nargs in ("*", "+", argparse.REMAINDER) or isinstance(action.nargs, int)
    style: Style = "words" if several else "one"
    if isinstance(action, argparse._AppendAction) and not several:
        style = "repeated"
    false = "" if action.type is bool else "False"  # bool("False") is True
    return Argument(_names(action), action.dest, _longest(spellings), style, false=false)


def _switches(flags: Sequence[argparse.Action]) -> Iterator[Argument]:
    """Arguments without a value; ``--cuda`` and ``--no-cuda`` are two spellings of one."""
    for action in flags:
        on, off = _spelled(flags, action.dest)
        if isinstance(action, argparse._StoreFalseAction):
            yield Argument(_names(action, dest=False), action.dest, style="flag", on=_longest(action.option_strings))
        yield Argument(_names(action, dest=True), action.dest, style="flag", on=on, off=off)


def _spelled(flags: Sequence[argparse.Action], dest: str) -> tuple[str, str]:
    """How True and False are written for ``dest``; empty: not at all."""
    on = off = ""
    for action in flags:
        if action.dest != dest:
            continue
        spelling = _longest(action.option_strings)
        if isinstance(action, argparse.BooleanOptionalAction):
            negative = (s for s in action.option_strings if s.startswith("--no-"))
            on, off = spelling, next(negative, "")
        elif isinstance(action, argparse._StoreTrueAction):
            on = on or spelling
        else:
            off = off or spelling
    return on, off


def _names(action: argparse.Action, dest: bool = True) -> frozenset[str]:
    is_pair = isinstance(action, argparse.BooleanOptionalAction)
    spelled = {_normal(s.lstrip("-")) for s in action.option_strings if not (is_pair and s.startswith("--no-"))}
    return frozenset(spelled | {_normal(action.dest)} if dest else spelled)


def _longest(spellings: Sequence[str]) -> str:
    """``--learning-rate`` rather than ``-l``; empty if there is none."""
    return next((s for s in spellings if s.startswith("--")), next(iter(spellings), ""))


def of_click(command: Any) -> list[Argument]:
    """The arguments of a ``click.Command``."""
    found = []
    for parameter in command.params:
        names = frozenset({_normal(s.lstrip("-")) for s in parameter.opts} | {_normal(parameter.name or "")})
        spelling = _longest(parameter.opts) if parameter.param_type_name == "option" else ""
        if getattr(parameter, "is_flag", False):
            off = _longest(parameter.secondary_opts)
            found.append(Argument(names, parameter.name or "", style="flag", on=spelling, off=off))
        else:
            found.append(Argument(names, parameter.name or "", spelling, _style_of(parameter)))
    return found


def _style_of(parameter: Any) -> Style:
    """How a parameter of click takes several values."""
    if getattr(parameter, "multiple", False):
        return "repeated"
    return "one" if parameter.nargs == 1 else "words"
