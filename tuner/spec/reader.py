"""From an experiment file and overrides to one ``Experiment``, or to every problem that they have."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tuner.errors import InputError, Place, Problem, did_you_mean
from tuner.spec.document import Document, dotted, kind, parse_value, read_yaml
from tuner.spec.document import Path as KeyPath
from tuner.spec.experiment import ExperimentSpec
from tuner.spec.importing import import_attribute
from tuner.spec.space import Space, read_space, space_from_param_space

YAML_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Experiment:
    """A checked specification, and where it came from, so that later problems can name their place."""

    spec: ExperimentSpec
    document: Document
    file: Path | None
    """None for an experiment that was given as a Python mapping."""
    roots: tuple[Path, ...]
    """Folders in which relative paths and modules are looked up, in this order."""
    space_from_python: str | None = None
    """``module:attribute`` of a ``param_space`` that has no YAML form."""

    def problem(self, path: KeyPath, message: str) -> Problem:
        return Problem(self.document.place(path), dotted(path), message)


def load_experiment(
    source: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Mapping[str, Any] | Sequence[str] = (),
    roots: tuple[Path, ...] | None = None,
) -> Experiment:
    """Reads ``source``, a YAML file or a mapping of the same form.

    ``roots``: folders for relative paths; by default the working directory, the file's folder and its parent.
    ``overrides``: texts ``a.b=value`` or a mapping of dotted key to value, where text is read as YAML.
    Raises InputError holding all problems of the file, the overrides and the search space.
    """
    if isinstance(source, Mapping):
        file, document = None, Document(_plain(source), "<python>")
    else:
        file = Path(source)
        document = _read_file(file)
    roots = roots or _roots(file)
    if document.value is None:
        raise InputError(
            [
                Problem(
                    Place(document.source),
                    "",
                    "the file is empty; it needs at least trainable, search_space and objective",
                )
            ]
        )
    if not isinstance(document.value, dict):
        raise InputError(
            [Problem(document.place(()), "", f"an experiment is a mapping of keys, not {kind(document.value)}")]
        )
    problems: list[Problem] = []
    items = [_split(text) for text in overrides] if not isinstance(overrides, Mapping) else list(overrides.items())
    space_overrides = [(k, v) for k, v in items if k.startswith("search_space.")]
    for key, value in items:
        if (key, value) not in space_overrides:
            _override(document, key, value)
    space, python_space = _space(document, space_overrides, roots, problems)
    document.value.setdefault("name", _default_name(file))
    spec = _validate(document, space, problems)
    if problems or spec is None:
        raise InputError(problems)
    return Experiment(spec, document, file, roots, python_space)


def _roots(file: Path | None) -> tuple[Path, ...]:
    folders = [Path.cwd()]
    if file is not None:
        folder = file.resolve().parent
        folders += [folder, folder.parent]
    return tuple(dict.fromkeys(folders))


def _default_name(file: Path | None) -> str:
    return file.stem if file else "search"


def _plain(value: Any) -> Any:
    """A deep copy of the containers, so that overrides never change the caller's mapping."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _read_file(file: Path) -> Document:
    try:
        text = file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        siblings = sorted(p.name for p in file.parent.glob("*.y*ml")) if file.parent.is_dir() else []
        hint = f"; in {file.parent} there is: {', '.join(siblings)}" if siblings else ""
        raise InputError([Problem(Place(str(file)), "", f"no such file{hint}")]) from None
    except UnicodeDecodeError as error:
        raise InputError([Problem(Place(str(file)), "", f"not text in UTF-8 (byte {error.start})")]) from None
    except OSError as error:
        raise InputError([Problem(Place(str(file)), "", f"cannot be read: {error.strerror}")]) from None
    return read_yaml(text, str(file))


def _split(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip(".") or ".." in key:
        raise InputError([Problem(Place(f"--set {text}"), "", "write --set KEY=VALUE, as in --set budget.trials=6")])
    return key, value


def _override(document: Document, key: str, value: Any) -> None:
    source = f"--set {key}"
    other = (
        parse_value(value, source) if isinstance(value, str) else Document(_plain(value), source, {(): Place(source)})
    )
    document.graft(tuple(key.split(".")), other)


def _space(
    document: Document, overrides: list[tuple[str, Any]], roots: tuple[Path, ...], problems: list[Problem]
) -> tuple[Space | None, str | None]:
    """The search space, read from its file or attribute where the document names one."""
    path: KeyPath = ("search_space",)
    value = document.value.get("search_space")
    if "search_space" not in document.value:
        return None, None
    place = document.place(path)
    if isinstance(value, str) and (value.endswith(YAML_SUFFIXES) or ":" not in value):
        file = find_file(value, roots)
        if file is None:
            problems.append(Problem(place, "search_space", _not_found(value, roots)))
            return None, None
        try:
            document.graft(path, _read_file(file))
        except InputError as error:
            problems.extend(error.problems)
            return None, None
    elif isinstance(value, str):
        if overrides:
            keys = ", ".join(key for key, _ in overrides)
            problems.append(
                Problem(place, "search_space", f"{value} is a Python object: --set {keys} cannot change it")
            )
            return None, None
        try:
            return space_from_param_space(import_attribute(value, roots, dict)), value
        except InputError as error:
            problems.extend(
                Problem(place, "search_space", p.message if not p.key else f"{p.key}: {p.message}")
                for p in error.problems
            )
            return None, None
    for key, item in overrides:
        _override(document, key, item)
    return read_space(document, path, problems), None


def find_file(name: str, roots: tuple[Path, ...]) -> Path | None:
    """The first file called ``name`` in ``roots`` (or ``name`` itself, where it is absolute)."""
    for root in roots:
        if (root / name).is_file():
            return Path(os.path.relpath(root / name)) if (root / name).is_relative_to(Path.cwd()) else root / name
    return None


def _not_found(name: str, roots: tuple[Path, ...]) -> str:
    return f"no file {name!r}; looked in {', '.join(map(str, roots))}"


def _validate(document: Document, space: Space | None, problems: list[Problem]) -> ExperimentSpec | None:
    value = dict(document.value)
    if "search_space" in value:
        value["search_space"] = space
    try:
        return ExperimentSpec.model_validate(value)
    except ValidationError as error:
        unread = space is None and "search_space" in value  # its own problems are known already
        errors = [e for e in error.errors() if not (unread and e["loc"] == ("search_space",))]
        problems.extend(_problem(document, details) for details in errors)
    return None


def _problem(document: Document, error: ErrorDetails) -> Problem:
    """One pydantic error as a problem with a place and a message in the user's words."""
    path = _written_path(document.value, error["loc"])
    key, context = dotted(path), error.get("ctx", {})
    given = kind(error["input"])
    match error["type"]:
        case "missing":
            here = document.place(path[:-1])
            return Problem(here, key, "required, but missing" + (f"; {_REQUIRED[key]}" if key in _REQUIRED else ""))
        case "extra_forbidden":
            return Problem(
                document.place(path),
                key,
                f"unknown key; {did_you_mean(str(path[-1]), _keys_at(document.value, path[:-1]))}",
            )
        case "union_tag_invalid":
            tags = [tag.strip("' ") for tag in str(context["expected_tags"]).split(",")]
            path = (*path, "kind")
            return Problem(
                document.place(path),
                dotted(path),
                f"{context['tag']!r} is unknown; {did_you_mean(str(context['tag']), tags)}",
            )
        case "union_tag_not_found":
            return Problem(document.place(path), key, "needs a kind, as in `kind: asha`")
        case "value_error":
            message = f"{context['error']}"
        case "string_pattern_mismatch" if key == "trainable":
            message = f"{error['input']!r} is not module:function or path/to/file.py:function"
        case "literal_error":
            allowed = [text.strip("' ") for text in str(context["expected"]).replace(" or ", ", ").split(",")]
            message = f"{given} is not allowed; {did_you_mean(str(error['input']), allowed)}"
        case _:
            expected = error["msg"].removeprefix("Input should be ")
            message = f"must be {expected}, not {given}" if expected != error["msg"] else f"{error['msg']}, not {given}"
    return Problem(document.place(path), key, message)


_REQUIRED = {
    "trainable": "write module:function or path/to/file.py:function",
    "search_space": "write domains, the path of a YAML file, or module:attribute",
    "objective": "write {metric: NAME, mode: max} or mode: min",
    "objective.mode": "write max if large values are good, min if small ones are",
}


def _written_path(value: Any, loc: tuple[int | str, ...]) -> KeyPath:
    """``loc`` without the names of union members that pydantic puts between the keys a user wrote."""
    path: list[str | int] = []
    for i, part in enumerate(loc):
        present = (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int))
        if present:
            value = value[part]
            path.append(part)
        elif i == len(loc) - 1 and isinstance(value, dict):
            path.append(part)
    return tuple(path)


def _keys_at(value: dict[str, Any], path: KeyPath) -> list[str]:
    """The keys allowed at ``path``, by walking the models (and by ``kind`` through unions)."""
    model: type[BaseModel] = ExperimentSpec
    for part in path:
        value = value[part]  # type: ignore[index]
        candidates = _models(model.model_fields[str(part)].annotation)
        chosen = [
            m for m in candidates if "kind" in m.model_fields and m.model_fields["kind"].default == value.get("kind")
        ]
        model = (chosen or candidates)[0]
    return list(model.model_fields)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]
