"""The document of a command that fails."""

from __future__ import annotations

from tuner.documents.document import Document
from tuner.documents.runs import Summary


class FailureProblem(Document):
    """One thing that is wrong with the input."""

    file: str | None
    """The file, or the option such as ``--set budget.trials``; null if it has none."""
    line: int | None
    """From 1; null if the problem has no place in a file."""
    column: int | None
    """From 1; null if the problem has no place in a file."""
    key: str | None
    """The key of the experiment file, dotted; null if it concerns none."""
    message: str
    """The problem, the rule, and the remedy."""


class CommandError(Document):
    """Why a command failed."""

    error: str
    """The message; a line for each problem."""
    exit_status: int
    """That of the command: 1, 2, 3, 4 or 130."""
    problems: list[FailureProblem]
    """Problems of the input, each with its place; empty if the input is right."""


class SearchError(Summary, CommandError):
    """Why a search failed or was interrupted, with all that it found until then."""
