"""The parameters of a trial as arguments of LightningCLI, and what its parser says of them."""

from __future__ import annotations

import json
import math
import re
from argparse import ArgumentError
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lightning.pytorch.cli import LightningCLI

from tuner.errors import did_you_mean, shortened
from tuner.spec.user_imports import UserExit

REFUSALS = (ArgumentError, UserExit, TypeError, ValueError, LookupError, AttributeError)
"""What the parser raises if it does not take the arguments."""

FIT = "fit"

_OPTIONAL = ("model", "data", "optimizer", "lr_scheduler")
"""Keys that LightningCLI has, also if the file does not."""

_REASON = 300
"""Characters of what the parser says that a message repeats."""


def argument(name: str, value: Any) -> str:
    """One parameter. A text stays as it is, as its type decides what it means."""
    if isinstance(value, float) and not math.isfinite(value):
        text = ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    else:
        text = value if isinstance(value, str) else json.dumps(value, default=repr)
    return f"--{name}={text}"


def ordered(parameters: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """What chooses a class before the arguments of that class."""
    return sorted(parameters, key=lambda item: (item[0].removesuffix(".class_path").count("."), item[0]))


class _Found(Exception):
    """The parser is made."""


class _OnlyParser(LightningCLI):  # type: ignore[misc]
    """Makes its parser, and nothing of the configuration."""

    def parse_arguments(self, parser: Any, args: Any) -> None:
        raise _Found(parser)


def new_parser(*, run: bool) -> Any:
    """The parser of LightningCLI, with ``run`` that of its subcommands; it raises what it refuses."""
    try:
        _OnlyParser(run=run, args=[], save_config_callback=None, parser_kwargs={"exit_on_error": False})
    except _Found as found:
        return found.args[0]
    raise AssertionError("LightningCLI did not parse its arguments")


def unknown(names: Sequence[str], known: Sequence[str], file: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The parameters that LightningCLI does not have, apart from arguments of the user's classes.

    The parser itself takes the beginning of a name for the name.
    """
    tops = list(dict.fromkeys([*(name.partition(".")[0] for name in known if name != "config"), *_OPTIONAL]))
    trainer = [name for name in known if name.startswith("trainer.")]
    for name in names:
        if name.startswith("trainer."):
            has = any(f"{name}.".startswith(f"{one}.") or one.startswith(f"{name}.") for one in trainer)
            allowed = trainer
        else:
            has, allowed = name.partition(".")[0] in tops, tops
        if not has:
            yield tuple(name.split(".")), f"LightningCLI has no such key for {file}; {did_you_mean(name, allowed)}"


def reason(error: BaseException, known: Mapping[str, Any]) -> str:
    """Why the parser refuses arguments, in one line; ``known``: what it makes of the file, by dotted keys."""
    text = str(error)
    if option := re.search(r"Problem with given class_path '([^']+)':\s+Option '([^']+)' is not accepted", text):
        cls, name = option.groups()
        prefix = next((key.removesuffix("class_path") for key, value in known.items() if value == cls), "")
        arguments = [key.removeprefix(f"{prefix}init_args.") for key in known if key.startswith(f"{prefix}init_args.")]
        hint = f"; {did_you_mean(name, arguments)}" if arguments else ""
        return f"{cls} has no argument {name!r}{hint}"
    expected = re.findall(r"Expected an? (?!<class 'NoneType'>)(.+?)(?:\. Got value.*)?$", text, re.MULTILINE)
    given = re.findall(r"(?:Given value|Got value): (?!NestedArg)(.+)$", text, re.MULTILINE)
    if expected and given:
        types = " or ".join(dict.fromkeys(re.sub(r"<class '(.+)'>", r"\1", one) for one in expected))
        return f"must be {types}, not {given[0]}"
    if problem := re.search(r"Problem with given class_path ('[^']+'):\s+(.+)$", text, re.MULTILINE):
        return f"{problem[1]}: {problem[2].strip()}"
    return shortened("; ".join(" ".join(line.split()) for line in text.splitlines() if line.strip()), _REASON)
