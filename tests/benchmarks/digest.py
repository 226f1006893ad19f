"""Whether many trials that report often wait for the driver.

    python tests/benchmarks/digest.py [--trials 100] [--rate 5] [--seconds 30]

As many trials as asked for run at once on one Ray node that has a CPU for each in name. When all are there, each
reports ``rate`` times a second by the clock, for so many seconds, and measures how long each call of ``tune.report``
takes; one that comes back after its time delays the next. In turn without tracking and with MLflow (a sqlite file), a
process each. Said are the reports a second that arrived, the share of their time in which trials waited in
``tune.report``, and the processor time of the driver's process (trials and tracking are other processes) per second.

Measured on 2 cores (AMD EPYC), Ray 2.60, in one run: 10 trials, 50 asked for: 46/s, median 3 ms in tune.report, driver
0.08 of a core. 100 trials, 500 asked for: 393/s, 42 ms, driver 0.68 of a core; with MLflow 218/s, 248 ms, 0.60. There
the hundred processes of the trials, the driver and MLflow's took all of both cores: not a measure of the driver alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]

TRAINABLE = """
import json, random, time
from pathlib import Path
from ray import tune

def train(config):
    folder, count, rate = Path(config["folder"]), int(config["rate"] * config["seconds"]), config["rate"]
    (folder / f"here_{config['n']}").touch()
    while len(list(folder.glob("here_*"))) < config["trials"]:
        time.sleep(1)
    time.sleep(5)  # until the driver is at rest
    begun = time.monotonic() + random.random() / rate
    took = []
    for step in range(count):
        time.sleep(max(0.0, begun + step / rate - time.monotonic()))
        before = time.monotonic()
        tune.report({"loss": 1 / (step + 1), "epoch": step, "accuracy": step / count, "lr": 0.1})
        took.append(time.monotonic() - before)
    late = time.monotonic() - begun - (count - 1) / rate
    (folder / f"took_{config['n']}").write_text(json.dumps([took, late]))
"""


class Meter:
    """Notes the driver's processor time between the first and the last of the reports."""

    def __init__(self, reports: int) -> None:
        self.reports, self.seen, self.marks = reports, 0, []

    def started(self, results: Any) -> None: ...
    def retried(self, trial: Any, failure: Any) -> None: ...
    def finished(self, results: Any) -> None: ...
    def tick(self) -> None: ...
    def ended(self, trial: Any) -> None: ...

    def reported(self, trial: Any, report: Any) -> None:
        self.seen += 1
        if self.seen in (1, self.reports):
            self.marks.append((time.monotonic(), time.process_time()))


def search(trials: int, rate: float, seconds: float, tracked: bool) -> None:
    """In a process of its own, in the directory of the trainable: searches, and prints what was measured."""
    import ray

    from tuner import run

    ray.init("local", num_cpus=trials, include_dashboard=False, log_to_driver=False)
    folder = Path.cwd() / f"marks{tracked:d}"
    folder.mkdir()
    meter = Meter(trials * int(rate * seconds))
    fixed = {"folder": str(folder), "trials": trials, "rate": rate, "seconds": seconds}
    experiment = {
        "trainable": "reports.py:train",
        "search_space": {"n": {"grid_search": list(range(trials))}, **fixed},
        "objective": {"metric": "loss", "mode": "min"},
        "search": {"kind": "grid"},
        "resources": {"cpu": 1, "gpu": 0},
        "tracking": {"mlflow": {"uri": f"sqlite:///{folder}/mlflow.db"}} if tracked else {},
    }
    results = run(experiment, storage="runs", name=f"r{tracked:d}", listeners=[meter], say=lambda text: None)
    assert sum(len(trial.reports) for trial in results.trials) == meter.reports
    (begun, spent), (ended, at_last) = meter.marks
    took = [json.loads(file.read_text()) for file in folder.glob("took_*")]
    waits = np.concatenate([waited for waited, _ in took])
    waiting = np.mean(waits) * rate
    print(
        f"{'with MLflow' if tracked else 'untracked'}: {meter.reports:,} reports of {trials} trials, "
        f"{meter.reports / (ended - begun):.0f}/s (asked for {trials * rate:.0f}); in tune.report {waiting:.1%} "
        f"of the time, median {np.median(waits) * 1e3:.1f} ms, 99 % below {np.quantile(waits, 0.99) * 1e3:.0f} ms; "
        f"last report late by {np.median([late for _, late in took]) * 1e3:.0f} ms (median of trials); "
        f"driver {(at_last - spent) / (ended - begun):.2f} of a core"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--rate", type=float, default=5.0, help="reports of a trial a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--one", choices=["untracked", "tracked"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        search(given.trials, given.rate, given.seconds, given.one == "tracked")
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "reports.py").write_text(TRAINABLE)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), folder])}
        for how in ("untracked", "tracked"):
            subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], "--one", how], cwd=folder, env=environment, check=True
            )


if __name__ == "__main__":
    main()
