"""What pydantic says of an experiment, in the user's words and with its place."""

from __future__ import annotations

from functools import reduce
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tuner.errors import Problem, did_you_mean
from tuner.experiment.spec import ExperimentSpec
from tuner.spec.document import Document, describe_type, dotted
from tuner.spec.document import Path as KeyPath
from tuner.spec.model import OptionError

_TRAINABLES = "module:function, file.py:function, script.py, hydra:config.yaml or lightning:config.yaml"

_REQUIRED = {
    "trainable": f"write {_TRAINABLES}",
    "search_space": "write domains, the path of a YAML file, or module:attribute",
    "objective": "write {metric: NAME, mode: max} or mode: min",
    "objective.mode": "write max if large values are good, min if small ones are",
}

_FORMS = {
    "trainable": _TRAINABLES,
    "class_path": "module:Class",
    "accelerator": "the name of a kind of GPU, such as H100",
}
"""What the patterns of texts mean, by the last name of their keys."""


def validation_problems(
    document: Document, error: ValidationError, model: type[BaseModel] = ExperimentSpec, block: KeyPath = ()
) -> list[Problem]:
    """One problem a key, however many members of a union complain of it.

    ``error`` is what ``model`` says of the part of the document at ``block``.
    """
    part = reduce(lambda inner, key: inner[key], block, document.value)
    by_path: dict[KeyPath, list[ErrorDetails]] = {}
    for details in error.errors():
        by_path.setdefault((*block, *_written_path(part, details["loc"], model)), []).append(details)
    problems = []
    for path, errors in by_path.items():
        if len(errors) > 1:
            expected = " or ".join(_expected(e) for e in errors)
            message = f"must be {expected}, not {describe_type(errors[0]['input'])}"
            problems.append(Problem(document.place(path), dotted(path), message))
        else:
            known = _keys_at(part, path[len(block) : -1], model) if errors[0]["type"] == "extra_forbidden" else []
            problems.append(_problem(document, path, errors[0], known))
    return problems


def _problem(document: Document, path: KeyPath, error: ErrorDetails, known: list[str]) -> Problem:
    """``known``: the keys that stand beside an unknown one."""
    context, given = error.get("ctx", {}), describe_type(error["input"])
    match error["type"]:
        case "missing":
            general = dotted(tuple(part for part in path if isinstance(part, str)))
            remedy = f"; {_REQUIRED[general]}" if general in _REQUIRED else ""
            return Problem(document.place(path[:-1]), dotted(path), f"required, but missing{remedy}")
        case "extra_forbidden":
            message = f"unknown key; {did_you_mean(str(path[-1]), known)}"
        case "union_tag_invalid":
            path = (*path, "kind")
            tags = _quoted(context["expected_tags"])
            message = f"{context['tag']!r} is unknown; {did_you_mean(str(context['tag']), tags)}"
        case "union_tag_not_found":
            message = f"needs a kind, as in `kind: {'auto' if path[0] == 'search' else 'asha'}`"
        case "value_error":
            path, message = _located(document.value, path, context["error"])
        case "string_pattern_mismatch" if path[-1] in _FORMS:
            message = f"{error['input']!r} is not {_FORMS[str(path[-1])]}"
        case "literal_error":
            message = f"{given} is not allowed; {did_you_mean(str(error['input']), _quoted(context['expected']))}"
        case _:
            message = f"must be {_expected(error)}, not {given}"
    return Problem(document.place(path), dotted(path), message)


def _located(value: Any, path: KeyPath, error: ValueError) -> tuple[KeyPath, str]:
    """The place and the message of a model's own check: the option that it is about, if the user wrote that option."""
    written = reduce(lambda inner, part: inner[part], path, value)
    if isinstance(error, OptionError) and isinstance(written, dict) and error.option in written:
        return (*path, error.option), error.message
    return path, str(error)


def _expected(error: ErrorDetails) -> str:
    if error["type"] in ("dict_type", "model_type", "model_attributes_type"):
        return "a mapping of keys"
    if error["type"] in ("list_type", "tuple_type"):
        return "a list"
    if error["type"] == "too_short":
        return f"a list of at least {error['ctx']['min_length']}"
    return error["msg"].removeprefix("Input should be ").removeprefix("a valid ")


def _quoted(names: Any) -> list[str]:
    """``'a', 'b' or 'c'`` as a list of names."""
    return [text.strip("' ") for text in str(names).replace(" or ", ", ").split(",")]


def _written_path(value: Any, loc: tuple[int | str, ...], root: type[BaseModel]) -> KeyPath:
    """``loc``, a place in ``value`` of the model ``root``, without what pydantic puts between the keys a user wrote."""
    path: list[str | int] = []
    model: type[BaseModel] | None = root
    for i, part in enumerate(loc):
        if i == 1 and root is ExperimentSpec and _fields(root)[str(loc[0])].discriminator:
            continue  # the kind of searcher or scheduler
        if isinstance(part, int) and not isinstance(value, list):
            continue  # one objective, which stands for a list of one
        known = model is not None or (isinstance(value, dict) and part in value)
        if not known and not (isinstance(value, list) and isinstance(part, int)):
            break
        path.append(part)
        model = model if isinstance(part, int) else _model_at(model, part, value)
        value = value.get(part) if isinstance(value, dict) else value[int(part)] if isinstance(value, list) else None
    return tuple(path)


def _model_at(model: type[BaseModel] | None, name: str, value: Any) -> type[BaseModel] | None:
    """The model of the field ``name`` of ``model``, chosen by its ``kind`` in a union; None for a plain value."""
    if model is None or name not in _fields(model):
        return None
    candidates = _models(_fields(model)[name].annotation)
    written = value.get(name) if isinstance(value, dict) else None
    named = written.get("kind") if isinstance(written, dict) else None
    chosen = [m for m in candidates if "kind" in m.model_fields and m.model_fields["kind"].default == named]
    return next(iter(chosen or candidates), None)


def _keys_at(value: Any, path: KeyPath, root: type[BaseModel]) -> list[str]:
    model: type[BaseModel] | None = root
    for part in path:
        model = model if isinstance(part, int) else _model_at(model, part, value)
        value = value[part]
    return list(_fields(model)) if model else []


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of ``model`` by the names that a user writes."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]
