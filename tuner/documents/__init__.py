"""What every command prints with ``--json``: a model of each document, and its JSON Schema."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from tuner.documents.errors import CommandError, SearchError
from tuner.documents.jobs import FetchedRun, JobLog, JobRow, StoppedJob, SubmittedJob, TravellingFiles
from tuner.documents.loops import AskedTrial, BegunLoop, ToldTrial
from tuner.documents.runs import (
    Address,
    Comparison,
    ControlledRun,
    ListedRun,
    PlannedSearch,
    ReportPage,
    RunStatus,
    Shown,
    StoppedRun,
    Summary,
)
from tuner.documents.service import ListedToken, MadeToken, RevokedTokens, TeamSearch
from tuner.documents.tools import (
    Algorithms,
    CheckFinding,
    ExportedStudy,
    ExportedTable,
    SentRun,
    Simulated,
    WrittenExperiment,
    WrittenFiles,
    WrittenProject,
)
from tuner.documents.trust import Confirmed, Replayed, RestoredTrial

ERROR = "error"
"""Stands for the document of any command that fails."""

DOCUMENTS: dict[str, Any] = {
    "init": WrittenExperiment | WrittenProject | WrittenFiles,
    "validate": PlannedSearch,
    "run": Summary,
    "resume": Summary | SubmittedJob | TeamSearch,
    "extend": Summary,
    "retry": Summary,
    "begin": BegunLoop,
    "ask": AskedTrial,
    "tell": ToldTrial,
    "stop": StoppedRun | StoppedJob,
    "control": ControlledRun,
    "list": list[ListedRun],
    "show": Shown,
    "status": RunStatus,
    "report": ReportPage,
    "compare": Comparison,
    "ui": Address,
    "watch": Address,
    "best": RestoredTrial,
    "confirm": Confirmed,
    "replay": Replayed,
    "submit": SubmittedJob | TravellingFiles | TeamSearch,
    "jobs": list[JobRow] | list[TeamSearch],
    "logs": JobLog,
    "fetch": FetchedRun,
    "serve": Address,
    "token": MadeToken | list[ListedToken] | RevokedTokens,
    "doctor": list[CheckFinding],
    "export": ExportedStudy | ExportedTable,
    "sync": SentRun,
    "simulate": Simulated,
    "algorithms": Algorithms,
    ERROR: SearchError | CommandError,
}
"""The type of each command's document; of ``error`` that of any command that fails."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of the document that the command ``name`` prints with ``--json``; of ``error`` its own.

    Raises KeyError for another name.

    Example:
        >>> from tuner.documents import schema
        >>> schema("status")["required"]
        ['state', 'run', 'last_event', 'trials']
    """
    found = TypeAdapter(DOCUMENTS[name]).json_schema(mode="serialization")
    return {"$schema": DIALECT, "title": f"tuner {name} --json" if name != ERROR else "a command that fails"} | {
        key: value for key, value in found.items() if key != "title"
    }


def schemas() -> dict[str, dict[str, Any]]:
    """The schema of each command, by its name."""
    return {name: schema(name) for name in DOCUMENTS}
