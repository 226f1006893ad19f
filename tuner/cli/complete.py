"""Shell completion of runs, trials, jobs, experiments and keys. Reads a few small files, and asks no server."""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from tuner import examples
from tuner.storage.folder import STORAGE

_RUN_HAS = ("experiment.yaml", "journal.jsonl")
_MOST = 1000
"""Names that a shell gets at most."""


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Any file: the shell knows better than we."""
    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Any folder."""
    return [CompletionItem(incomplete, type="dir")]


def experiments(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """YAML files, the folders on the way to them, and the names of shipped experiments."""
    shipped = [name for name in examples.names() if name.startswith(incomplete)]
    folder, slash, begun = incomplete.rpartition("/")
    try:
        found = sorted(Path(folder + slash).expanduser().iterdir())
    except (OSError, RuntimeError):  # RuntimeError: ~name of a user that there is not
        found = []
    found = [path for path in found if path.name.startswith(begun) and (begun or path.name[0] != ".")]
    kept = [path for path in found if path.suffix in (".yaml", ".yml") or path.is_dir()]
    names = [f"{folder}{slash}{path.name}{'/' if path.is_dir() else ''}" for path in kept]
    return _items([*names, *shipped]) or files(ctx, param, incomplete)


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Names of the runs in the storage folder, the latest first; folders where a path is begun."""
    if "/" in incomplete:
        return folders(ctx, param, incomplete)
    names = sorted(_run_names(_storage(ctx)), key=lambda name: name.rpartition("-")[2], reverse=True)
    return _items(name for name in names if name.startswith(incomplete)) or folders(ctx, param, incomplete)


def jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Names of the jobs and runs in a storage folder that this machine sees; the cluster itself is not asked."""
    storage = _storage(ctx)
    names = {*_run_names(storage), *_folders(storage / ".jobs")}
    return _items(sorted(name for name in names if name.startswith(incomplete)))


def trials(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Numbers and ids of the trials of the run that is named before."""
    run = str(ctx.params.get("run_") or next(iter(ctx.args), ""))  # args: after an option without its value
    places = [Path(run), _storage(ctx) / run] if run else []
    found = [item for place in places for item in _trials(place / "trials.csv")]
    return [item for item in found if item.value.startswith(incomplete)][:_MOST]


def commands(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Commands to a search that runs."""
    from tuner.search.orders import KINDS

    return _items(name for name in KINDS if name.startswith(incomplete))


def keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """``budget.trials=``: keys of the experiment file; after the ``=`` the values, if there are few."""
    from tuner.experiment.schema import experiment_schema

    schema = experiment_schema()
    key, equals, _ = incomplete.partition("=")
    if equals:
        values = (value for path, node in _leaves(schema, schema) if path == key for value in _values(node))
        return _items(text for value in dict.fromkeys(values) if (text := f"{key}={value}").startswith(incomplete))
    known = dict.fromkeys(path for path, _ in _leaves(schema, schema))
    return _items(f"{path}=" for path in known if path.startswith(incomplete))


def _items(values: Iterable[str]) -> list[CompletionItem[str]]:
    return [CompletionItem(value) for value in values][:_MOST]


def _storage(ctx: click.Context) -> Path:
    """The storage folder of the command that is being typed. A URI names none on this machine."""
    return Path(str(ctx.params.get("storage") or os.environ.get("TUNER_STORAGE") or STORAGE))


def _folders(place: Path) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        return [entry.name for entry in entries if entry.is_dir() and entry.name.isprintable()]
    return []


def _run_names(storage: Path) -> list[str]:
    return [name for name in _folders(storage) if any((storage / name / file).exists() for file in _RUN_HAS)]


def _trials(table: Path) -> Iterator[CompletionItem[str]]:
    """Each trial by its number, then each by its id."""
    rows: list[Mapping[str, str]] = []
    with contextlib.suppress(OSError, ValueError, csv.Error), table.open(encoding="utf-8", newline="") as file:
        rows = [row for row, _ in zip(csv.DictReader(file), range(_MOST), strict=False)]
    for column in ("number", "id"):
        for row in rows:
            if (value := row.get(column) or "").isprintable() and value:
                yield CompletionItem(value, help=row.get("status"))


def _leaves(node: Mapping[str, Any], schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Each key below ``node`` that holds a value, with what the schema says of that. The space has keys of its own."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    inner = [part for name in ("anyOf", "oneOf") for part in node.get(name, ())]
    below = node.get("properties", {})
    if path and path != "search_space" and not below and not any("$ref" in part for part in inner):
        yield path, node
    for part in inner if path != "search_space" else ():
        yield from _leaves(part, schema, path) if "$ref" in part else ()
    for name, child in below.items():
        yield from _leaves(child, schema, f"{path}.{name}" if path else name)


def _values(node: Mapping[str, Any]) -> Iterator[str]:
    """The values that ``node`` allows, where it lists them."""
    for part in (node, *node.get("anyOf", ())):
        listed = [*part.get("enum", ()), *([part["const"]] if "const" in part else [])]
        listed += [True, False] if part.get("type") == "boolean" else []
        for value in listed:
            yield str(value).lower() if isinstance(value, bool) else str(value)
