"""What an MLflow holds of a run, read through its own client."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from tuner.runs.consumption import PREFIX
from tuner.runs.results import ResultSet
from tuner.tracking.backends.base import step_of

Rows = Counter[tuple[str, int, str, float | str]]
"""How often there is (trial, step, metric, value); NaN, which does not equal itself, as text."""


def runs(uri: str) -> list[Run]:
    """All that are not deleted."""
    client = MlflowClient(uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return list(client.search_runs(experiments, max_results=1000))


def parent(uri: str) -> Run:
    """Of the one search there."""
    (found,) = (run for run in runs(uri) if "mlflow.parentRunId" not in run.data.tags)
    return found


def children(uri: str) -> dict[str, Run]:
    """By trial. Fails where a trial has two."""
    found = [run for run in runs(uri) if "mlflow.parentRunId" in run.data.tags]
    assert {run.data.tags["mlflow.parentRunId"] for run in found} <= {parent(uri).info.run_id}
    by_trial = {run.data.tags["tuner.trial"]: run for run in found}
    assert len(by_trial) == len(found)
    return by_trial


def held(uri: str) -> Rows:
    """All metrics of all trials that these reported themselves."""
    client = MlflowClient(uri)
    return Counter(
        (trial, metric.step, name, _cell(metric.value))
        for trial, run in children(uri).items()
        for name in run.data.metrics
        if not name.startswith(PREFIX)
        for metric in client.get_metric_history(run.info.run_id, name)
    )


def recorded(results: ResultSet) -> Rows:
    """The same of results.parquet.

    A trial that continued from another one's checkpoint may come to a step twice: two values; but MLflow keeps one
    where all is equal, the time too.
    """
    frame = results.frame()
    fixed = ["trial_id", "training_iteration", "time_total_s", "timestamp", "checkpoint"]
    rows = set()
    for trial in results.trials:
        told = frame[frame["trial_id"] == trial.id].drop(columns=fixed)
        for report, values in zip(trial.reports, told.to_dict("records"), strict=True):
            numeric = {name: value for name, value in values.items() if isinstance(value, (bool, int, float))}
            where = trial.id, step_of(results, report), report.timestamp
            rows |= {(*where, str(k), _cell(float(v))) for k, v in numeric.items() if k in report.metrics}
    return Counter((trial, step, name, value) for trial, step, _, name, value in rows)


def _cell(value: Any) -> float | str:
    return "NaN" if math.isnan(value) else max(-1.7976931348623157e308, min(1.7976931348623157e308, value))
