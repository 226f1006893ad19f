"""Runs that never ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.storage.folder import RunFolder


def made_up_run(folder: Path, **provenance: Any) -> ResultSet:
    """A run without trials."""
    spec = {
        "name": "made_up",
        "trainable": "nowhere:train",
        "params": {"epochs": 9, "model": {"depth": 2}},
        "objective": {"metric": "acc", "mode": "max"},
        "scheduler": {"kind": "asha", "time_attr": "epoch"},
        "tracking": {"mlflow": {}},
    }
    started = {"id": "one", "started": "2026-01-01T00:00:00+0000", "host": "here", "user": "me", "seed": 0}
    return ResultSet(RunFolder.at(folder / "run"), spec, started | provenance)


def made_up_trial(results: ResultSet, *accuracies: float, status: Any = "running", **metrics: Any) -> Trial:
    """A trial that reported ``accuracies``, one an epoch."""
    number = len(results.trials) + 1
    trial = results.add(Trial(f"id{number}", number, {"lr": 0.1 * number, "model": {"width": 8}}, status))
    for epoch, accuracy in enumerate(accuracies, 1):
        report(trial, epoch, accuracy, **metrics)
    return trial


def report(trial: Trial, step: int, accuracy: float, at: float = 0.0, **metrics: Any) -> Report:
    """One more of it, at epoch ``step``; the best where it is the highest."""
    values = {"epoch": step, "acc": accuracy, **metrics}
    new = Report(trial.id, step, float(step), 1.8e9 + trial.number + 10 * step + at, values, None)
    trial.reports = [r for r in trial.reports if r.step < step] + [new] + [r for r in trial.reports if r.step > step]
    trial.best = max(trial.reports, key=lambda r: r.metrics["acc"])
    return new
