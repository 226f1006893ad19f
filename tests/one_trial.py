"""One trial of a trainable in this process, without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.execution.in_process import run_in_process
from tuner.execution.trial_context import TrialContext


def run_trial(
    folder: Path,
    trainable: str,
    config: dict[str, Any],
    metrics: tuple[str, ...] = ("loss",),
    *,
    params: dict[str, Any] | None = None,
    trial_id: str = "abc",
    last: int = 99,
) -> tuple[list[dict[str, Any]], str]:
    """The reports of a trial, which is stopped at its report ``last``, and why it failed."""
    required = (*((name, "objective.metric") for name in metrics), ("training_iteration", "scheduler.time_attr"))
    task = TrialContext(trainable, (folder,), folder, params or {}, required, 1, 1, {"CPU": 1}, 1)
    reports: list[dict[str, Any]] = []

    def take(step: int, values: dict[str, Any]) -> bool:
        reports.append(values)
        return step < last

    error = run_in_process(task, config, take, trial_id=trial_id)
    return reports, f"{type(error).__name__}: {error}" if error else ""
