"""What people commanded while a search ran, as a table."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tuner.runs.commands import Commanded
from tuner.runs.results import ResultSet
from tuner.spec.configuration import flat
from tuner.spec.values import brief

HEAD = ("when", "who", "command", "what came of it")


def command_rows(results: ResultSet) -> list[list[str]]:
    """A row for each command, in the order in which they were carried out: the columns are `HEAD`."""
    return [[_when(one.sent), one.by, _written(one), _outcome(results, one)] for one in results.commands]


def _when(sent: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(sent))


def _written(command: Commanded) -> str:
    """As somebody would write it: ``clone 3 changes.lr=0.1 checkpoint=true``."""
    arguments: Mapping[str, Any] = {k: v for k, v in command.arguments.items() if k != "trial"}
    words = [f"{name}={brief(value)}" for name, value in flat(arguments)]
    return " ".join(
        [command.do, *[str(command.arguments[name]) for name in ("trial",) if name in command.arguments], *words]
    )


def _outcome(results: ResultSet, command: Commanded) -> str:
    if not command.done:
        return f"refused: {command.reason}"
    trials = [known.label if (known := results.get(trial_id)) else trial_id for trial_id in command.trials]
    return f"done: trial {', '.join(trials)}" if trials else "done"
