"""A run with made-up learning curves and a journal, as large as one likes, without running anything."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from tuner.runs.journal import JournalWriter
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.storage.folder import RunFolder

SPEC: dict[str, Any] = {
    "name": "large",
    "trainable": "trainables.cifar:train",
    "params": {"epochs": 30},
    "search_space": {
        "optimizer": {"choice": ["sgd", "adamw", "lion"]},
        "lr": {"loguniform": [1e-4, 1.0]},
        "momentum": {"uniform": [0.8, 0.99], "when": {"optimizer": "sgd"}},
        "weight_decay": {"loguniform": [1e-6, 1e-2]},
        "label_smoothing": {"uniform": [0.0, 0.2]},
        "batch_size": {"choice": [64, 128, 256]},
        "width": {"lograndint": [8, 129]},
        "dropout": {"uniform": [0.0, 0.5]},
    },
    "objective": {"metric": "val_accuracy", "mode": "max"},
    "search": {"kind": "random", "seed": 0},
    "scheduler": {"kind": "asha", "time_attr": "epoch", "max_t": 30, "grace_period": 1, "reduction_factor": 3},
}
WORKERS = 8
RUNGS = (1, 3, 9)


def made_up_run(folder: Path, trials: int, reports: int) -> ResultSet:
    """A run whose trials all have ``reports`` reports, so that the page is as large as it can be."""
    rng = np.random.default_rng(0)
    results = ResultSet(
        RunFolder.at(folder), SPEC, {"seed": 0, "slots": WORKERS, "interrupted": False, "trials": trials}
    )
    results.folder.create()
    journal = JournalWriter(results.folder)
    journal.append("began", spec=SPEC, provenance=results.provenance)
    free = [0.0] * WORKERS
    for number in range(1, trials + 1):
        trial = _trial(rng, number, reports)
        lane = int(np.argmin(free))
        free[lane] = _journaled(journal, trial, free[lane] + float(rng.exponential(2.0)), rng)
        results.add(trial)
    journal.close()
    results.provenance["elapsed_s"] = max(free)
    return results


def _trial(rng: np.random.Generator, number: int, reports: int) -> Trial:
    config: dict[str, Any] = {
        "optimizer": str(rng.choice(["sgd", "adamw", "lion"])),
        "lr": float(10 ** rng.uniform(-4, 0)),
        "weight_decay": float(10 ** rng.uniform(-6, -2)),
        "label_smoothing": float(rng.uniform(0, 0.2)),
        "batch_size": int(rng.choice([64, 128, 256])),
        "width": int(2 ** rng.uniform(3, 7)),
        "dropout": float(rng.uniform(0, 0.5)),
    }
    if config["optimizer"] == "sgd":
        config["momentum"] = float(rng.uniform(0.8, 0.99))
    rung = None if number % 5 == 0 else RUNGS[number % 3]
    reason = "epoch reached max_t 30" if rung is None else f"stopped by the scheduler at rung {rung}"
    trial = Trial(f"{number:08x}", number, config, "completed" if rung is None else "stopped", reason, rung)
    top = 0.9 - 0.1 * (math.log10(config["lr"]) + 1.5) ** 2 + 0.02 * math.log2(config["width"]) + rng.normal(0, 0.02)
    for step in range(1, reports + 1):
        value = float(top * (1 - math.exp(-step / 6)) + rng.normal(0, 0.005))
        metrics = {"epoch": step, "val_accuracy": value, "val_loss": 1 - value}
        trial.reports.append(Report(trial.id, step, 3.1 * step, 0.0, metrics, f"ray/{trial.id}/{step}"))
    trial.best = max(trial.reports, key=lambda report: report.metrics["val_accuracy"])
    return trial


def _journaled(journal: JournalWriter, trial: Trial, now: float, rng: np.random.Generator) -> float:
    """Writes the events of ``trial``, which starts at second ``now``; the second at which it ends."""
    journal.append("suggested", trial=trial.id, config=trial.config, elapsed=now)
    journal.append("started", trial=trial.id, elapsed=now)
    for report in trial.reports:
        now += float(rng.uniform(2.9, 3.3))
        fields = {"trial": trial.id, "step": report.step, "seconds": report.seconds, "timestamp": 1.7e9 + now}
        journal.append("reported", **fields, metrics=report.metrics, checkpoint=None, decision="continue", elapsed=now)
    journal.append("ended", trial=trial.id, status=trial.status, reason=trial.reason, rung=trial.rung, elapsed=now)
    return now
