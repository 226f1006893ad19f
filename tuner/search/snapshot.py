"""The snapshot of a search, ``state.pkl``: what its journal comes to after some event, so that it need not be played.

A pickle, and so opened only where this user signed it (`tuner.storage.signing`). It is never needed as long as the
journal is whole: one of another version of the packages whose objects it holds is passed over.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ray import cloudpickle

from tuner.errors import InputError
from tuner.installed import versions
from tuner.runs.file_shapes import MAX_TABLE_BYTES
from tuner.runs.trial import Trial
from tuner.search.state import SearchState
from tuner.storage.folder import RunFolder
from tuner.storage.signing import is_ours, signature

STATE = "state.pkl"

_FORMAT = 10
"""Counts the changes of classes whose objects are in it."""

_TRIALS_AT_ONCE = 500


@dataclass(frozen=True)
class Snapshot:
    """A search after event `number` of its journal."""

    number: int
    elapsed: float
    """Seconds of the search."""
    state: SearchState
    trials: Callable[[], list[Trial]] | None
    """Loads them: a search whose journal is whole does not need them. Raises InputError if they cannot be read.

    None in the snapshot of a large search that runs: to write them would hold it up."""


def write_snapshot(folder: RunFolder, snapshot: Snapshot) -> None:
    """Writes ``state.pkl``, whole or not at all."""
    data = io.BytesIO()
    cloudpickle.dump((snapshot.number, snapshot.elapsed, snapshot.state), data)  # a param_space may hold lambdas
    trials = snapshot.trials() if snapshot.trials else []
    for first in range(0, len(trials), _TRIALS_AT_ONCE):
        cloudpickle.dump(trials[first : first + _TRIALS_AT_ONCE], data)
    content = data.getvalue()
    head = {"versions": _versions(), "sha256": hashlib.sha256(content).hexdigest(), "signature": signature(content)}
    folder.write(STATE, json.dumps(head).encode() + b"\n" + content)


def read_snapshot(folder: RunFolder, trust: bool = False) -> tuple[Snapshot | None, str]:
    """The snapshot, and where it cannot be used the reason.

    Without ``trust`` another user's is not opened, as opening it can run any code.
    """
    try:
        head, _, content = folder.read(STATE, MAX_TABLE_BYTES).partition(b"\n")
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"cannot be read: {error}"
    told = _head(head)
    if told.get("sha256") != hashlib.sha256(content).hexdigest():
        return None, "is damaged, or of another version of tuner"
    if told.get("versions") != _versions():
        return None, "is of another version of tuner, Python or their packages"
    if not trust and not is_ours(content, str(told.get("signature"))):
        return None, "was written by another user or on another machine (--trust opens it all the same)"
    stream = io.BytesIO(content)
    try:
        number, elapsed, state = pickle.load(stream)
    except Exception as error:  # noqa: BLE001 (the objects' own code may raise anything)
        return None, f"cannot be read: {type(error).__name__}: {error}"
    first = stream.tell()

    def trials() -> list[Trial]:
        found: list[Trial] = []
        stream.seek(first)
        try:
            while stream.tell() < len(content):
                found.extend(pickle.load(stream))
        except Exception as error:
            raise InputError(f"{folder.location}: state.pkl cannot be read: {type(error).__name__}: {error}") from error
        return found

    return Snapshot(number, elapsed, state, trials if stream.tell() < len(content) else None), ""


def _head(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _versions() -> dict[str, str | int]:
    python = ".".join(platform.python_version_tuple()[:2])
    return {"format": _FORMAT, "python": python, **versions(("tuner", "numpy", "optuna", "hyperopt", "cmaes"))}
