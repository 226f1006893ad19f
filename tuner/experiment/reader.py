"""From an experiment file and overrides to one ``Experiment``, or to every problem that they have."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tuner import examples
from tuner.errors import InputError, Place, Problem, did_you_mean
from tuner.experiment.plug_ins import SCHEDULERS, SEARCHES, read_plug_in
from tuner.experiment.spec import ExperimentSpec
from tuner.experiment.validation_errors import validation_problems
from tuner.spec.document import Document, describe_type, dotted, parse_value, plain, read_yaml
from tuner.spec.document import Path as KeyPath
from tuner.spec.space import Space, read_space, space_from_param_space
from tuner.spec.space.constraints import read_constraint
from tuner.spec.space.model import MAX_CONSTRAINTS
from tuner.spec.user_imports import import_attribute, no_exit, text_of
from tuner.storage.folder import RunFolder
from tuner.storage.pickled import Pickled, is_pickled
from tuner.trainable.optuna_objective import is_objective
from tuner.trainable.optuna_space import space_from_objective
from tuner.trainable.references import own_space

YAML_SUFFIXES = (".yaml", ".yml")

MAX_BYTES = 4_000_000
"""Upper bound on a file: the parser takes a second to pass over 4 MB of comments. Values have bounds of their own."""


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
    pickles: tuple[Pickled, ...] = ()
    """The objects without an importable name that the experiment refers to."""

    def problem(self, path: KeyPath, message: str) -> Problem:
        return Problem(self.document.place(path), dotted(path), message)


def load_experiment(
    source: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Mapping[str, Any] | Sequence[str] = (),
    roots: tuple[Path, ...] | None = None,
    pickles: Sequence[Pickled] = (),
) -> Experiment:
    """Reads ``source``, a YAML file, the name of a shipped experiment, or a mapping of the same form.

    ``roots``: folders for relative paths; by default the working directory, the file's folder and its parent. Those of
    a shipped experiment are the examples, and then the working directory.
    ``overrides``: texts ``a.b=value`` or a mapping of dotted key to value, where text is read as YAML.
    ``pickles``: objects that it refers to; others are looked for as files.
    Raises InputError holding all problems of the file, the overrides and the search space.
    """
    if isinstance(source, Mapping):
        file, document = None, Document(plain(source, "<python>"), "<python>")
    else:
        shipped = shipped_experiment(source)
        file = shipped or Path(source)
        roots = roots or (_unique(examples.FOLDER, Path.cwd()) if shipped else None)
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
            [
                Problem(
                    document.place(()), "", f"an experiment is a mapping of keys, not {describe_type(document.value)}"
                )
            ]
        )
    problems: list[Problem] = []
    items = [_split(text) for text in overrides] if not isinstance(overrides, Mapping) else list(overrides.items())
    _change_kinds(document, items, roots)
    space_overrides = [(k, v) for k, v in items if k.startswith("search_space.")]
    for key, value in items:
        if (key, value) not in space_overrides:
            _override(document, key, value)
    pickles = (*pickles, *_pickles_in(document, roots, {pickled.file for pickled in pickles}))
    space, python_space = _space(document, space_overrides, roots, pickles, problems)
    document.value.setdefault("name", _default_name(file))
    spec = _validate(document, _constrained(document, space, problems), roots, problems)
    if problems or spec is None:
        raise InputError(problems)
    return Experiment(spec, document, file, roots, python_space, pickles)


def _pickles_in(document: Document, roots: tuple[Path, ...], known: set[str]) -> Iterator[Pickled]:
    """The pickled objects that the document refers to and that ``roots`` have; none is opened."""
    references = [document.value.get(key) for key in ("trainable", "search_space")]
    names = {text.rpartition(":")[0] for text in references if isinstance(text, str) and is_pickled(text)}
    for name in sorted(names - known):
        file = find_file(name, roots)
        if file is not None:
            with contextlib.suppress(OSError):  # whoever needs it says that it is not there
                yield replace(Pickled.read(RunFolder.at(file.parent), file.name), file=name)


def _roots(file: Path | None) -> tuple[Path, ...]:
    folders = [Path.cwd()]
    if file is not None:
        folder = file.resolve().parent
        folders += [folder, *([] if _anybody_writes(folder.parent) else [folder.parent])]
    return _unique(*folders)


def _unique(*folders: Path) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(folders))


def shipped_experiment(source: str | os.PathLike[str]) -> Path | None:
    """The file of the shipped experiment that ``source`` names, as in ``quickstart``; None if it names a file."""
    name = os.fspath(source)
    return None if os.path.lexists(name) and not os.path.isdir(name) else examples.experiment(name)  # noqa: PTH112


def _anybody_writes(folder: Path) -> bool:
    """Whether all users of this machine may put files there, as in /tmp."""
    return folder.is_dir() and bool(folder.stat().st_mode & stat.S_IWOTH)


def _default_name(file: Path | None) -> str:
    return file.stem if file else "search"


def _read_file(file: Path) -> Document:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InputError([Problem(Place(str(file)), "", f"is larger than {MAX_BYTES:,} bytes")])
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise InputError([Problem(Place(str(file)), "", f"no such file{_there_is(file)}")]) from None
    except UnicodeDecodeError as error:
        raise InputError([Problem(Place(str(file)), "", f"not text in UTF-8 (byte {error.start})")]) from None
    except OSError as error:
        raise InputError([Problem(Place(str(file)), "", f"cannot be read: {error.strerror}")]) from None
    return read_yaml(text, str(file))


def _there_is(file: Path) -> str:
    """Suggestions for ``file``, which is not there."""
    siblings = sorted(p.name for p in file.parent.glob("*.y*ml")) if file.parent.is_dir() else []
    hint = f"; in {file.parent} there is: {', '.join(siblings)}" if siblings else ""
    if file.suffix or file.name != str(file):
        return hint
    shipped = did_you_mean(file.name, examples.names()).removeprefix("allowed: ")
    return f"; the shipped experiments are: {shipped}{hint}"


def _split(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip(".") or ".." in key:
        raise InputError([Problem(Place(f"--set {text}"), "", "write --set KEY=VALUE, as in --set budget.trials=6")])
    return key, value


def _change_kinds(document: Document, overrides: list[tuple[str, Any]], roots: tuple[Path, ...]) -> None:
    """``--set search.kind=NAME`` chooses another algorithm: what only the one in the file has goes with that one."""
    for family in (SEARCHES, SCHEDULERS):
        written = document.value.get(family.block)
        chosen = {
            key: value for key, value in overrides if key in (f"{family.block}.kind", f"{family.block}.class_path")
        }
        if f"{family.block}.kind" not in chosen or not isinstance(written, dict):
            continue
        other = {key.partition(".")[2]: _parsed(key, value).value for key, value in chosen.items()}
        if kept := family.options_of(other, roots):
            for option in family.options_of(written, roots) - kept:
                written.pop(option, None)


def _override(document: Document, key: str, value: Any) -> None:
    document.set_at(tuple(key.split(".")), _parsed(key, value))


def _parsed(key: str, value: Any) -> Document:
    """The value of an override, which is YAML where it is text."""
    source = f"--set {key}"
    return (
        parse_value(value, source)
        if isinstance(value, str)
        else Document(plain(value, source), source, {(): Place(source)})
    )


def _space(
    document: Document,
    overrides: list[tuple[str, Any]],
    roots: tuple[Path, ...],
    pickles: Sequence[Pickled],
    problems: list[Problem],
) -> tuple[Space | None, str | None]:
    """The search space, read from its file or attribute where the document names one."""
    path: KeyPath = ("search_space",)
    value = document.value.get("search_space")
    if "search_space" not in document.value and not _set_own_space(document, roots, problems):
        return None, None
    place = document.place(path)
    if isinstance(value, str) and (value.endswith(YAML_SUFFIXES) or ":" not in value):
        file = find_file(value, roots)
        if file is None:
            problems.append(Problem(place, "search_space", _not_found(value, roots)))
            return None, None
        try:
            document.set_at(path, _read_file(file))
        except InputError as error:
            problems.extend(error.problems)
            return None, None
    elif isinstance(value, str):
        try:
            attribute = import_attribute(value, roots, pickles=pickles)
            with no_exit():
                takes_trial = is_objective(attribute)
            if takes_trial:
                document.set_at(path, Document(plain(space_from_objective(attribute), value), value, {(): place}))
            elif overrides:
                keys = ", ".join(key for key, _ in overrides)
                message = f"{value} is a Python object: --set {keys} cannot change it"
                problems.append(Problem(place, "search_space", message))
                return None, None
            else:
                return space_from_param_space(import_attribute(value, roots, dict, pickles)), value
        except InputError as error:
            problems.extend(
                Problem(place, "search_space", p.message if not p.key else f"{p.key}: {p.message}")
                for p in error.problems
            )
            return None, None
        except Exception as error:  # noqa: BLE001 - the user's own dict may raise anything when it is read: it is shown
            text = f"cannot be read: {type(error).__name__}: {text_of(error)}"
            problems.append(Problem(place, "search_space", text))
            return None, None
    for key, item in overrides:
        _override(document, key, item)
    return read_space(document, path, problems), None


def _set_own_space(document: Document, roots: tuple[Path, ...], problems: list[Problem]) -> bool:
    """Writes the search space that the trainable itself has, if it has one; the document has none."""
    place, reference = document.place(("trainable",)), document.value.get("trainable")
    try:
        space = own_space(reference, roots)
    except InputError as error:
        problems.extend(Problem(place, "trainable", problem.message) for problem in error.problems)
        document.value["search_space"] = {}  # else it would be told besides that there is none
        return False
    if space is None:
        return False
    document.set_at(("search_space",), Document(plain(space, str(reference)), str(reference), {(): place}))
    return True


def _constrained(document: Document, space: Space | None, problems: list[Problem]) -> Space | None:
    """``space`` with the constraints that the document writes; `_validate` finds those that are not text."""
    texts, params = document.value.get("constraints"), document.value.get("params")
    if space is None or not isinstance(texts, list):
        return space
    if len(texts) > MAX_CONSTRAINTS:
        message = f"a space has at most {MAX_CONSTRAINTS} constraints, not {len(texts):,}"
        problems.append(Problem(document.place(("constraints",)), "constraints", message))
        return space
    names = [parameter.path for parameter in space.parameters]
    constraints = []
    for i, text in enumerate(texts):
        if isinstance(text, str):
            try:
                constraints.append(read_constraint(text, names, params if isinstance(params, dict) else {}))
            except ValueError as error:
                path = ("constraints", i)
                problems.append(Problem(document.place(path), dotted(path), str(error)))
    return replace(space, constraints=tuple(constraints))


def find_file(name: str, roots: tuple[Path, ...]) -> Path | None:
    """The first file called ``name`` in ``roots``, then in the examples (or ``name`` itself, if it is absolute)."""
    for root in (*roots, examples.FOLDER):
        if os.path.isfile(root / name):  # noqa: PTH113 - Path.is_file raises on a name that is too long
            return Path(os.path.relpath(root / name)) if (root / name).is_relative_to(Path.cwd()) else root / name
    return None


def _not_found(name: str, roots: tuple[Path, ...]) -> str:
    return f"no file {name!r}; looked in {', '.join(map(str, roots))}"


def _validate(
    document: Document, space: Space | None, roots: tuple[Path, ...], problems: list[Problem]
) -> ExperimentSpec | None:
    known = len(problems)
    plug_ins = {family.block: read_plug_in(family, document, roots, problems) for family in (SEARCHES, SCHEDULERS)}
    read = {block: spec for block, spec in plug_ins.items() if spec is not None}
    refused = {problem.key.partition(".")[0] for problem in problems[known:]}
    value = {key: item for key, item in document.value.items() if key not in refused} | read
    if "search_space" in value:
        value["search_space"] = space
    try:
        return ExperimentSpec.model_validate(value)
    except ValidationError as error:
        unread = space is None and "search_space" in value  # its own problems are known already
        problems.extend(p for p in validation_problems(document, error) if not (unread and p.key == "search_space"))
    return None
