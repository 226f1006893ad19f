"""Everything that tuner raises on purpose, as one tree.

    TunerError                    exit status 1: never raised itself
    ├── InputError                2: what the user wrote is wrong; holds every Problem found, each with its place
    ├── NoUsableResult            3: the search ended, but no trial gave a result that can be used
    ├── EnvironmentFailure        4: data, storage, the cluster or a server failed
    │   └── RayLost               4: Ray died under a search
    └── Interrupted               130: the user stopped the search; the run folder is complete

The command line prints ``str(error)`` and exits with ``error.exit_status``; anything else that escapes is a bug
and shows its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Place:
    """Where something was written: a file (or ``--set KEY``, or ``<python>``), with 1-based line and column.

    ``line`` 0 means that the source has no lines (a command-line option, a Python object).
    """

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong with the input: where, which key, what is wrong and what is allowed."""

    place: Place
    key: str
    message: str

    def __str__(self) -> str:
        text = ": ".join(part for part in (str(self.place), self.key, self.message) if part)
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)  # one problem, one line


class TunerError(Exception):
    """Base class: an error with a message for the user and an exit status."""

    exit_status = 1


class InputError(TunerError):
    """The input is wrong; nothing was started. ``problems`` holds all of them, in the order of the file."""

    exit_status = 2

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = (
            (Problem(Place(""), "", problems),) if isinstance(problems, str) else tuple(sorted(set(problems)))
        )
        super().__init__("\n".join(str(problem).removeprefix(": ") for problem in self.problems))


class NoUsableResult(TunerError):
    """The search ended without one trial that has a usable result."""

    exit_status = 3


class EnvironmentFailure(TunerError):
    """The data, the storage, the cluster or a server could not do what was asked of it."""

    exit_status = 4


class RayLost(EnvironmentFailure):
    """Ray died under a search. Its threads in this process wait a minute for it, so that an orderly exit takes long."""


class Interrupted(TunerError):
    """The user stopped the search before its end."""

    exit_status = 130


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A hint for an unknown ``name``: the nearest known name, and all that are allowed."""
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"allowed: {', '.join(known)}{hint}" if known else "none is allowed here"
