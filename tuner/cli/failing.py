"""How a command fails: a text on stderr, and with ``--json`` the same as a document on stdout."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import click

from tuner.cli.output import echo, print_json
from tuner.errors import MOST_PROBLEMS, InputError, Problem, TunerError
from tuner.redaction import redacted


def show(error: TunerError, prefix: str = "error: ") -> None:
    """An error that tuner raised on purpose."""
    echo("\n".join(prefix + redacted(line) for line in str(error).splitlines()), err=True)
    if _json_is_wanted():
        print_json(document(error))


def show_usage(error: click.ClickException) -> None:
    """An error of click's: the command line itself is wrong."""
    error.show(file=(text := io.StringIO()))
    echo(text.getvalue(), err=True, nl=False)
    if _json_is_wanted():
        print_json(_document(error.format_message(), error.exit_code, ()))


def document(error: TunerError) -> dict[str, Any]:
    """``error`` as ``--json`` prints it, with what a search found until then."""
    from tuner.cli.run import summary

    known = {} if error.results is None else summary(error.results)
    problems = error.problems[:MOST_PROBLEMS] if isinstance(error, InputError) else ()
    return {**known, **_document(str(error), error.exit_status, problems)}


def _document(text: str, status: int, problems: tuple[Problem, ...]) -> dict[str, Any]:
    from tuner.documents.errors import FailureProblem

    found = [FailureProblem.of(problem).model_dump() for problem in problems]
    return {"error": redacted(text), "exit_status": status, "problems": found}


def _json_is_wanted() -> bool:
    """Whether the command line asks for a document. It may be too wrong for click to parse."""
    words = sys.argv[1 : sys.argv.index("--") if "--" in sys.argv else None]
    return "--json" in words or os.environ.get("TUNER_JSON", "").lower() in ("1", "true", "yes", "on", "t", "y")
