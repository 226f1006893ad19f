"""The schemas of a tool: its input is made from the parameters of a click command, its output from a document."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import click
from pydantic import TypeAdapter

from tuner.documents import DOCUMENTS
from tuner.documents.calls import PendingCall
from tuner.errors import InputError, did_you_mean
from tuner.mcp.verbs import PEOPLE_ONLY, Verb

Schema = dict[str, Any]

RESULT = "result"
"""The key of a document that is a list, as a tool returns objects only."""

WAIT = "wait_s"
"""How long a call of a lasting command waits for its end."""

WAIT_DEFAULT_S, WAIT_MOST_S = 20, 600

ARGUMENTS = {
    "file": "An experiment file, or the name of a shipped experiment.",
    "files": "Experiment files, or names of shipped experiments.",
    "run_": "A run: its name below the storage, or the path or URI of its folder.",
    "runs": "Runs: names below the storage, or paths or URIs of their folders.",
    "trial": "A trial: its id, or its number.",
    "do": "The command, as the description lists them.",
    "words": "What the command acts on, as the description lists it.",
    "metrics": "What the trial reports, each as METRIC=NUMBER.",
    "job": "The name of a job.",
    "name": "A run of this machine (name or path), or the name of a job of a cluster.",
    "folder": "A folder.",
}
"""The help of each argument, by the name of its parameter: click's arguments have none."""


def parameters(command: click.Command, verb: Verb) -> dict[str, click.Parameter]:
    """Parameters of ``command`` that the tool has, by their names in its input."""
    return {
        _name(parameter): parameter
        for parameter in command.params
        if parameter.name not in (*PEOPLE_ONLY, *verb.without) and not getattr(parameter, "hidden", False)
    }


def input_schema(command: click.Command, verb: Verb) -> Schema:
    """The JSON Schema of the input of a tool."""
    found = parameters(command, verb)
    properties = {name: _property(parameter) for name, parameter in found.items()}
    if verb.lasts:
        properties[WAIT] = wait_property()
    required = [name for name, parameter in found.items() if parameter.required or _must_be_named(name, verb)]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def wait_property() -> Schema:
    """The schema of the time that a call waits."""
    return {
        "type": "number",
        "minimum": 0,
        "maximum": WAIT_MOST_S,
        "default": WAIT_DEFAULT_S,
        "description": "Seconds to wait for the end of the command, which continues after them.",
    }


def output_schema(verb: Verb, command: str) -> Schema:
    """The JSON Schema of what a tool returns: the command's document, a list of documents under the key ``result``."""
    if command not in DOCUMENTS:  # `schema` prints what it describes
        return {"type": "object"}
    kind = DOCUMENTS[command] | PendingCall if verb.lasts else DOCUMENTS[command]
    found: Schema = _with_null(TypeAdapter(kind).json_schema(mode="serialization"))
    if found.get("type") != "array":
        return {"type": "object"} | found
    definitions = {"$defs": found.pop("$defs")} if "$defs" in found else {}
    return {"type": "object", "properties": {RESULT: found}, "required": [RESULT]} | definitions


def _with_null(schema: Any) -> Any:
    """``schema`` with null for every number: JSON has none that is not finite, and a tool gives null for it."""
    if isinstance(schema, list):
        return [_with_null(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {key: _with_null(inner) for key, inner in schema.items()}
    return inside | {"type": ["number", "null"]} if schema.get("type") == "number" else inside


def words(command: click.Command, verb: Verb, given: Mapping[str, Any]) -> list[str]:
    """``given`` as the words of a command line, without the name of the command.

    Raises InputError if a name is none of the tool's, or a value can be no word; the command itself checks the rest.
    """
    known = parameters(command, verb)
    options, arguments = list[str](), dict[str, list[str]]()
    for name, value in given.items():
        if name not in known:
            raise InputError(f"{name}: no such argument; {did_you_mean(name, list(known))}")
        parameter = known[name]
        if isinstance(parameter, click.Argument):
            arguments[name] = list(_texts(name, value))
        elif getattr(parameter, "is_flag", False):
            if not isinstance(value, bool):
                raise InputError(f"{name}: {value!r}: give true or false")
            options += [_spelling(parameter)] * value
        else:
            told = json.dumps(value) if isinstance(value, dict) and parameter.type.name == "yaml" else value
            options += [f"{_spelling(parameter)}={text}" for text in _texts(name, told)]
    if any(_must_be_named(name, verb) and name not in given for name in known):
        raise InputError("name: missing: choose the name of the run, by which status and show find it")
    ordered = [text for name in known for text in arguments.get(name, ())]
    return [*options, "--", *ordered] if ordered else options


def _texts(name: str, value: Any) -> Iterator[str]:
    """The words that a value stands for; null for none."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, (dict, list, bool)):
            raise InputError(f"{name}: {one!r}: give text or a number")
        if one is not None:
            yield _word(name, str(one))


def _word(name: str, text: str) -> str:
    """``text``, if the command line of a process can hold it."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InputError(f"{name}: {text!r}: it holds a character that a command line cannot hold")
    return text


def _must_be_named(name: str, verb: Verb) -> bool:
    """A search in the background is found by its name only."""
    return name == "name" and verb.survives


def _name(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return str(parameter.name).strip("_")
    return _spelling(parameter).strip("-").replace("-", "_")


def _spelling(parameter: click.Parameter) -> str:
    return max(parameter.opts, key=len)


def _property(parameter: click.Parameter) -> Schema:
    one = _type(parameter)
    several = parameter.multiple if isinstance(parameter, click.Option) else parameter.nargs == -1
    schema: Schema = {"type": "array", "items": one} if several else one
    if isinstance(parameter, click.Argument):
        return schema | {"description": ARGUMENTS[str(parameter.name)]}
    default = _default(parameter)
    return schema | {"description": getattr(parameter, "help", None) or ""} | ({"default": default} if default else {})


def _default(parameter: click.Parameter) -> Any:
    """The value if nothing is given: that of the environment, or else the default that the help shows."""
    if not isinstance(parameter, click.Option) or not parameter.show_default:
        return None
    variable = parameter.envvar if isinstance(parameter.envvar, str) else ""
    return os.environ.get(variable) or parameter.default


def _type(parameter: click.Parameter) -> Schema:
    kind = parameter.type
    if getattr(parameter, "is_flag", False):
        return {"type": "boolean"}
    if isinstance(kind, click.Choice):
        return {"type": "string", "enum": list(kind.choices)}
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        least = {"exclusiveMinimum" if kind.min_open else "minimum": kind.min} if kind.min is not None else {}
        most = {"exclusiveMaximum" if kind.max_open else "maximum": kind.max} if kind.max is not None else {}
        return {"type": "integer" if isinstance(kind, click.IntRange) else "number"} | least | most
    plain = {"integer": "integer", "float": "number", "yaml": ["object", "string"]}
    return {"type": plain.get(kind.name, "string")}
