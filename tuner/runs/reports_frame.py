"""The reports of a run as one table, which results.parquet holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tuner.runs.consumption import COLUMNS, PREFIX
from tuner.runs.csv_codec import to_series
from tuner.runs.trial import Report, Trial

if TYPE_CHECKING:
    import pandas as pd

FIXED = ("trial_id", "training_iteration", "time_total_s", "timestamp", "checkpoint")


def reports_frame(trials: Iterable[Trial], objectives: Sequence[str]) -> pd.DataFrame:
    """One row a report. A quantity that no report has gets no column."""
    import pandas as pd

    rows = [_row(report) for trial in trials for report in trial.reports]
    found = dict.fromkeys(name for row in rows for name in row)
    measured = [name for name in COLUMNS if name in found]  # they come last
    names = dict.fromkeys([*FIXED, *objectives, *(name for name in found if name not in COLUMNS), *measured])
    return pd.DataFrame({name: to_series([row.get(name) for row in rows]) for name in names})


def _row(report: Report) -> dict[str, Any]:
    metrics = {
        name: value
        for name, value in report.metrics.items()
        if (isinstance(value, (bool, int, float, str)) or value is None) and name not in COLUMNS
    }
    consumed = report.consumption.named() if report.consumption else {}
    return {
        "trial_id": report.trial_id,
        "training_iteration": report.step,
        "time_total_s": report.seconds,
        "timestamp": report.timestamp,
        "checkpoint": report.checkpoint,
        **metrics,
        **{f"{PREFIX}{name}": value for name, value in consumed.items()},
    }
