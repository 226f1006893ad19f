"""The document of a command that fails."""

from __future__ import annotations

from tuner.documents.document import Document
from tuner.documents.runs import Summary
from tuner.errors import Place, Problem
from tuner.redaction import redacted


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

    @classmethod
    def of(cls, problem: Problem) -> FailureProblem:
        """``problem`` as a document, without secrets."""
        place = problem.place
        return cls(
            file=place.source or None,
            line=place.line or None,
            column=place.column if place.line else None,
            key=problem.key or None,
            message=redacted(problem.message),
        )

    @property
    def problem(self) -> Problem:
        """What it was made of."""
        return Problem(Place(self.file or "", self.line or 0, self.column or 0), self.key or "", self.message)


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
