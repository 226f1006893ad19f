"""Everything that tuner raises on purpose, as one tree.

    TunerError                    exit status 1: never raised itself
    ├── Crashed                   1: an exception that nothing foresaw ended a search: the user's code, or a bug
    ├── UserCodeRaised            1: the user's code raised in the driver; a search turns it into Crashed
    ├── InputError                2: what the user wrote is wrong; holds every Problem found, each with its place
    ├── NoUsableResult            3: the search ended, but no trial gave a result that can be used
    ├── EnvironmentFailure        4: data, storage, the cluster or a server failed
    │   ├── RayLost               4: Ray died under a search
    │   └── LockLost              4: another process works on the run folder now
    └── Interrupted               130: the user stopped the search; the run folder is complete

The command line prints ``str(error)`` and exits with ``error.exit_status``. Anything else that escapes is a bug: out of
a search it becomes Crashed, and its traceback is in the run's log; elsewhere it shows its traceback.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

MOST_PROBLEMS = 50
"""Problems that one message tells: nobody reads more, and a damaged file can have one in each line."""

_LONGEST_LINE = 1000
"""Characters that one problem takes at most: a key, a value or a domain in it can be as long as the file."""

_MOST_NAMES = 30
"""Names that a hint lists."""

_MOST_COMPARED = 200
"""Names that a hint compares, and characters of each: difflib takes a time that grows with the square of a text."""


@dataclass(frozen=True, order=True)
class Place:
    """The place of a text: a file (or ``--set KEY``, or ``<python>``), with 1-based line and column.

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
        parts = (str(self.place), shortened(self.key, _LONGEST_LINE // 4), self.message)
        text = shortened(": ".join(part for part in parts if part), _LONGEST_LINE)
        printable = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)  # one problem, one line
        return shortened(printable, _LONGEST_LINE)


class TunerError(Exception):
    """Base class: an error with a message for the user and an exit status."""

    exit_status = 1
    results: Any = None
    """What a search found before the error ended it, a `tuner.ResultSet`; None if no search had begun."""


class Crashed(TunerError):
    """An exception that nothing foresaw ended the search, which can be resumed."""


class UserCodeRaised(TunerError):
    """The user's code raised in the driver. ``whose`` names that code; ``__cause__`` is what it raised."""

    def __init__(self, whose: str) -> None:
        super().__init__(f"{whose} raised an exception")
        self.whose = whose


@contextlib.contextmanager
def blaming(whose: str) -> Iterator[None]:
    """Within, the user's code runs in the driver. Raises UserCodeRaised if it raises."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise UserCodeRaised(whose) from error


class InputError(TunerError):
    """The input is wrong; nothing was started. ``problems`` holds all of them, in the order of the file.

    The text tells the first `MOST_PROBLEMS`, and how many more there are.
    """

    exit_status = 2

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = (
            (Problem(Place(""), "", problems),) if isinstance(problems, str) else tuple(sorted(set(problems)))
        )
        lines = [str(problem).removeprefix(": ") for problem in self.problems[:MOST_PROBLEMS]]
        more = len(self.problems) - len(lines)
        if more:
            lines.append(f"and {more:,} more problem{'s' if more > 1 else ''}")
        super().__init__("\n".join(lines))


class NoUsableResult(TunerError):
    """The search ended without one trial that has a usable result."""

    exit_status = 3


class EnvironmentFailure(TunerError):
    """The data, the storage, the cluster or a server could not do what was asked of it."""

    exit_status = 4


class RayLost(EnvironmentFailure):
    """Ray died under a search. Its threads in this process wait a minute for it, so that an orderly exit takes long."""


class LockLost(EnvironmentFailure):
    """Another process has the run folder now: nothing more may be written there."""


class Interrupted(TunerError):
    """The user stopped the search before its end."""

    exit_status = 130


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A hint for an unknown ``name``: the nearest known name, and those that are allowed.

    Bounded in time and length: it lists the first names only, and looks for the nearest among few and short ones only.
    """
    if not known:
        return "none is allowed here"
    more = len(known) - _MOST_NAMES
    listed = ", ".join(known[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")
    few = len(known) <= _MOST_COMPARED and len(name) <= _MOST_COMPARED
    nearest = _nearest(name, tuple(other for other in known if len(other) <= _MOST_COMPARED)) if few else ""
    return f"allowed: {listed}" + (f"; did you mean {nearest!r}?" if nearest else "")


@functools.lru_cache(4096)  # the same name is unknown in every configuration that a check draws
def _nearest(name: str, known: tuple[str, ...]) -> str:
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.6)), "")


def shortened(text: str, length: int) -> str:
    """``text``, without its middle where it is longer than ``length`` characters."""
    if len(text) <= length:
        return text
    head = length * 2 // 3
    return f"{text[:head]} … {text[head + 3 - length :]}"
