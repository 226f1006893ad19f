"""A whole run folder, small, of which damaged ones are made."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import torch

from tuner.plan.cluster import this_machine
from tuner.plan.planner import make_plan
from tuner.runs.failure import Failure
from tuner.runs.journal import JournalWriter, last_event
from tuner.runs.loading import load_summary
from tuner.runs.provenance import experiment_of, write_experiment
from tuner.runs.results import ResultSet, write_json
from tuner.runs.trial import Report, Segment, Trial
from tuner.search.new_state import new_state
from tuner.search.recovery import read_stored_search, recover
from tuner.search.snapshot import Snapshot, write_snapshot
from tuner.storage.folder import RunFolder
from tuner.storage.manifest import contents, seal

SPEC: dict[str, Any] = {
    "name": "victim",
    "trainable": "tests.hostile.trainable:train",
    "params": {"epochs": 9, "model": {"depth": 2}},
    "search_space": {
        "optimizer": {"choice": ["sgd", "adamw"]},
        "lr": {"loguniform": [1e-4, 1.0]},
        "momentum": {"uniform": [0.8, 0.99], "when": {"optimizer": "sgd"}},
        "width": {"randint": [8, 129]},
    },
    "objective": {"metric": "acc", "mode": "max"},
    "search": {"kind": "random", "seed": 0},
    "scheduler": {"kind": "asha", "time_attr": "epoch", "max_t": 9, "grace_period": "auto", "reduction_factor": 3},
    "budget": {"trials": 24},
    "resources": {"cpu": 1},
    "failures": {"storage_patience": 0.01},
}
PROVENANCE: dict[str, Any] = {
    "id": "0" * 32,
    "started": "2026-01-01T00:00:00+0000",
    "command": ["tuner", "run", "victim.yaml"],
    "working_directory": "/tmp",
    "experiment_file": "/tmp/victim.yaml",
    "roots": ["/tmp"],
    "notices": ["a notice"],
    "prepared": {},
    "seed": 0,
    "trials": 24,
    "trial_resources": {"CPU": 1.0},
    "slots": 2,
    "cluster": [{"name": "here", "CPU": 2.0, "memory": 1e9}],
    "user": "me",
    "host": "here",
    "platform": "Linux",
    "python": "3.11.2",
    "packages": {"torch": "2.11"},
    "git": {"commit": "a" * 40, "diff_sha256": ""},
    "interrupted": True,
    "elapsed_s": 99.0,
}
LIVE = {
    "time": 1.7e9,
    "slots": 2,
    "request": {"CPU": 1.0},
    "nodes": [{"CPU": 2.0}],
    "available": {"CPU": 0.0},
    "more": True,
    "trials": {"id2": {"state": "paused", "since": 1.7e9}},
}


def made(folder: Path, with_journal: bool = True) -> None:
    """A whole run folder: 24 trials, with failures, checkpoints, lineage, live.json, best/ and a journal."""
    results = ResultSet(RunFolder.at(folder), copy.deepcopy(SPEC), copy.deepcopy(PROVENANCE))
    results.folder.create()
    rng = random.Random(0)
    for number in range(1, 25):
        config: dict[str, Any] = {"optimizer": rng.choice(["sgd", "adamw"]), "lr": 10 ** rng.uniform(-4, 0)}
        config |= {"width": rng.randrange(8, 129)}
        config |= {"momentum": rng.uniform(0.8, 0.99)} if config["optimizer"] == "sgd" else {}
        status: Any = ("completed", "stopped", "failed", "paused", "running", "pending")[min(number % 8, 5)]
        trial = results.add(Trial(f"id{number}", number, config, status, f"reason {number}", 3, host=f"h{number % 2}"))
        for step in range(1, 1 + (0 if status == "pending" else rng.randrange(1, 10))):
            metrics = {"acc": rng.random(), "epoch": step, "note": "text", "fine": True}
            at, kept = 1.7e9 + 10 * number + step, f"ray/id{number}/checkpoint_{step}"
            trial.reports.append(Report(trial.id, step, 1.5 * step, at, metrics, kept if step % 2 else None))
        kept_reports = [r for r in trial.reports if r.checkpoint]
        trial.best = max(kept_reports, key=results.value, default=None)
        if status == "failed":
            trial.failures = [Failure("exception", "ValueError: no", 1), Failure("hung", "silent for 60s", 2, 8)]
    first, second = results.trials[:2]
    second.segments = [Segment(0, second.config), Segment(1, first.config, first.id, 1)]
    write_experiment(results)
    results.save()
    write_json(results.folder, "live.json", LIVE)
    results.folder.write("run.lock", json.dumps({"pid": 1, "host": "here", "time": 1.0}).encode())
    if results.best is not None and results.best.best is not None:
        (folder / "best" / "checkpoint").mkdir(parents=True)
        torch.save({"model": {"weight": torch.zeros(2, 3)}}, folder / "best" / "checkpoint" / "model.pt")
        seal(checkpoint := results.folder / "best" / "checkpoint", contents(checkpoint))
        (folder / "best" / "config.json").write_text(json.dumps(results.full_config(results.best)))
        told = {"trial": results.best.id, "step": results.best.best.step, **results.best.best.metrics}
        (folder / "best" / "metrics.json").write_text(json.dumps(told))
    if with_journal:
        _journal(results)
        _snapshot(results.folder)


def _journal(results: ResultSet) -> None:
    journal = JournalWriter(results.folder)
    journal.append("began", spec=results.spec, provenance=results.provenance)
    now = 0.0
    for trial in results.trials:
        journal.append("suggested", trial=trial.id, config=trial.config, elapsed=now)
        journal.append("started", trial=trial.id, host=trial.host, elapsed=now)
        for report in trial.reports:
            now += 1.0
            fields: dict[str, Any] = {"step": report.step, "seconds": report.seconds, "timestamp": report.timestamp}
            fields |= {"metrics": report.metrics, "checkpoint": report.checkpoint, "decision": "continue"}
            journal.append("reported", trial=trial.id, **fields, elapsed=now)
        if trial.has_ended:
            ended: dict[str, Any] = {"status": trial.status, "reason": trial.reason, "rung": trial.rung}
            journal.append("ended", trial=trial.id, **ended, elapsed=now)
    journal.append("left", interrupted=True, elapsed=now)
    journal.close()


def _snapshot(folder: RunFolder) -> None:
    """Writes one of the search as its journal tells it, signed by this user."""
    stock = read_stored_search(load_summary(folder))
    plan = make_plan(experiment_of(stock.results), this_machine())
    recovered = recover(stock, lambda: new_state(plan, []))
    event = last_event(folder)
    assert event is not None
    trials = recovered.results.trials
    write_snapshot(folder, Snapshot(event["n"], recovered.elapsed, recovered.state, lambda: trials))
