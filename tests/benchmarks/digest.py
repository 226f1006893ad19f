"""Whether many trials that report often wait for the driver.

    python tests/benchmarks/digest.py [--trials 100] [--rate 5] [--seconds 30] [--sides tuner tuner+mlflow ray]

As many trials as asked for run at once on one Ray node that has a CPU for each in name. When all are there, each
reports ``rate`` times a second by the clock, for so many seconds, and measures how long each call of ``tune.report``
takes; one that comes back after its time delays the next. In turn tuner, tuner with MLflow (a sqlite file), and Ray
Tune alone, a driver process each. Said are the reports a second between the first and the last that a trial made, the
share of their time in which trials waited in ``tune.report``, and the processor time of the driver's process (trials
and tracking are other processes) per second.

Measured on 2 cores (AMD EPYC), Ray 2.60, one run each, one after the other, 100 trials, 500 reports a second asked for:
tuner 498/s, 2.1 % of the time in tune.report, median 0.6 ms, driver 0.34 of a core; with MLflow 483/s, 6.6 %, 2.2 ms,
0.33 of a core; Ray Tune 191/s, 302 ms (trials wait all the time), 0.73 of a core. Before trials reported in turns
(`tuner.execution.controller.AT_ONCE`) tuner took 393/s, 42 ms, 0.68 of a core, and with MLflow 218/s.
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
SIDES = ["tuner", "tuner+mlflow", "ray"]

TRAINABLE = """
import json, random, time
from pathlib import Path
from ray import tune

def train(config):
    folder, count, rate = Path(config["folder"]), int(config["rate"] * config["seconds"]), config["rate"]
    (folder / f"here_{config['n']}").touch()
    while len(here := list(folder.glob("here_*"))) < config["trials"]:
        time.sleep(1)
    start = max(file.stat().st_mtime for file in here) + 10  # the driver is at rest
    begun = time.monotonic() + start - time.time() + random.random() / rate
    took = []
    for step in range(count):
        time.sleep(max(0.0, begun + step / rate - time.monotonic()))
        before = time.monotonic()
        tune.report({"loss": 1 / (step + 1), "epoch": step, "accuracy": step / count, "lr": 0.1})
        took.append(time.monotonic() - before)
    late = time.monotonic() - begun - (count - 1) / rate
    (folder / f"took_{config['n']}").write_text(json.dumps([took, begun, late]))
"""


class Meter:
    """Notes the driver's processor time at the first and the last of the reports."""

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


def by_tuner(fixed: dict[str, Any], meter: Meter, tracking: dict[str, Any]) -> None:
    from tuner import run

    experiment = {
        "trainable": "reports.py:train",
        "search_space": {"n": {"grid_search": list(range(fixed["trials"]))}, **fixed},
        "objective": {"metric": "loss", "mode": "min"},
        "search": {"kind": "grid"},
        "resources": {"cpu": 1, "gpu": 0},
        "tracking": tracking,
    }
    run(experiment, storage=f"{fixed['folder']}/runs", name="r", listeners=[meter], say=lambda text: None)


def by_ray(fixed: dict[str, Any], meter: Meter) -> None:
    from ray import tune

    sys.path.insert(0, str(Path.cwd()))
    from reports import train

    class Reported(tune.Callback):
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            meter.reported(trial, result)

    tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={"n": tune.grid_search(list(range(fixed["trials"]))), **fixed},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(storage_path=f"{fixed['folder']}/runs", name="r", verbose=0, callbacks=[Reported()]),
    ).fit()


def search(side: str, trials: int, rate: float, seconds: float) -> None:
    """In a process of its own, in the directory of the trainable: searches, and prints what was measured."""
    import ray

    ray.init("local", num_cpus=trials, include_dashboard=False, log_to_driver=False)
    folder = Path.cwd() / side
    folder.mkdir()
    meter = Meter(trials * int(rate * seconds))
    fixed = {"folder": str(folder), "trials": trials, "rate": rate, "seconds": seconds}
    if side == "ray":
        by_ray(fixed, meter)
    else:
        by_tuner(fixed, meter, {"mlflow": {"uri": f"sqlite:///{folder}/mlflow.db"}} if side == "tuner+mlflow" else {})
    assert meter.seen == meter.reports
    (first, spent), (last, at_last) = meter.marks
    took = [json.loads(file.read_text()) for file in folder.glob("took_*")]
    waits = np.concatenate([waited for waited, _, _ in took])
    ends = [begun + late + int(rate * seconds - 1) / rate for _, begun, late in took]
    arrived = meter.reports / (max(ends) - min(begun for _, begun, _ in took))
    print(
        f"{side}: {meter.reports:,} reports of {trials} trials, {arrived:.0f}/s (asked for {trials * rate:.0f}); in "
        f"tune.report {np.mean(waits) * rate:.1%} of the time, median {np.median(waits) * 1e3:.1f} ms, 99 % below "
        f"{np.quantile(waits, 0.99) * 1e3:.0f} ms; last report late by "
        f"{np.median([late for _, _, late in took]) * 1e3:.0f} ms (median of trials); "
        f"driver {(at_last - spent) / (last - first):.2f} of a core"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--rate", type=float, default=5.0, help="reports of a trial a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--one", choices=SIDES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        search(given.one, given.trials, given.rate, given.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "reports.py").write_text(TRAINABLE)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), folder])}
        for side in given.sides:
            command = [sys.executable, __file__, *sys.argv[1:], "--one", side]
            subprocess.run(command, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()
