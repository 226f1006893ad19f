"""What tracking by MLflow costs a search, beside Ray's own callback.

    python tests/benchmarks/tracking.py [--rounds 7]

30 trials of 27 reports, two at a time; MLflow on a sqlite file that has its tables. In turn, each in a process of its
own: tuner without tracking, tuner with it, with reports that compute nothing and with the quickstart's training (all of
its epochs); Ray Tune without, Ray Tune with `MLflowLoggerCallback`. Two times of each: of the search (from its first
trial's start to its end) and of the whole process, from its start to its exit, when MLflow has everything. Prints the
median and the spread of each, and the ratios of the pairs.

Measured on 2 cores (AMD EPYC), Ray 2.60, MLflow 3.17; seconds without, seconds with, ratio of the pairs:
  search:  training 12.3, 12.6: 1.02 (0.94 to 1.18, 6 pairs)
           nothing 1.4, 1.6: 1.10 (0.96 to 1.23, 4 pairs); Ray Tune 2.6, 35.8: 13.9 (9.4 to 22.5, 4 pairs)
  process: training 20.3, 21.4: 1.03 (0.99 to 1.13, 6 pairs)
           nothing 7.8, 9.2: 1.20 (1.15 to 1.22, 4 pairs); Ray Tune 14.4, 48.7: 3.5 (3.3 to 3.6, 4 pairs)
What is left is the processor time of importing MLflow, which shares two cores with the start of Ray and of the trials.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRIALS, REPORTS = 30, 27

TRAINABLE = f"""
from ray import tune

def train(config):
    for step in range({REPORTS}):
        tune.report({{"loss": config["x"] / (step + 1), "epoch": step + 1, "lr": config["x"], "accuracy": 0.1 * step}})
"""
TUNER = f"""
import sys
from tuner import run
tracking = {{"mlflow": {{"uri": sys.argv[2]}}}} if sys.argv[1] == "with" else {{}}
results = run({{
    "name": "b", "trainable": "nothing.py:train", "search_space": {{"x": {{"uniform": [0, 1]}}}},
    "objective": {{"metric": "loss", "mode": "min"}}, "search": {{"kind": "random", "seed": 0}},
    "budget": {{"trials": {TRIALS}}}, "resources": {{"gpu": 0}}, "tracking": tracking,
}}, storage="runs", name="r", say=lambda text: None)
assert sum(len(trial.reports) for trial in results.trials) == {TRIALS * REPORTS}
print(results.provenance["elapsed_s"])
"""
TRAINING = f"""
import sys
from tuner import run
tracking = {{"mlflow": {{"uri": sys.argv[2]}}}} if sys.argv[1] == "with" else {{}}
results = run("{ROOT}/experiments/quickstart.yaml", {{
    "scheduler": {{"kind": "fifo"}}, "budget": {{"trials": {TRIALS}}}, "tracking": tracking,
}}, storage="runs", name="r", say=lambda text: None)
assert sum(len(trial.reports) for trial in results.trials) == {TRIALS * REPORTS}
print(results.provenance["elapsed_s"])
"""
RAY = f"""
import sys, time
import ray
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback
from nothing import train
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)

class Started(tune.Callback):
    at = None
    def on_trial_start(self, **info):
        self.at = self.at or time.monotonic()

started = Started()
callbacks = [started]
if sys.argv[1] == "with":
    callbacks.append(MLflowLoggerCallback(tracking_uri=sys.argv[2], experiment_name="b"))
tune.Tuner(
    train, param_space={{"x": tune.uniform(0, 1)}},
    tune_config=tune.TuneConfig(num_samples={TRIALS}, metric="loss", mode="min", reuse_actors=True),
    run_config=tune.RunConfig(storage_path=sys.argv[3], verbose=0, callbacks=callbacks),
).fit()
print(time.monotonic() - started.at)
"""
SCRIPTS = {"tuner": TUNER, "tuner, training": TRAINING, "Ray Tune": RAY}


def empty_database(folder: Path) -> Path:
    """With MLflow's tables."""
    file = folder / "empty.db"
    made = f"from mlflow import MlflowClient; MlflowClient('sqlite:///{file}').search_experiments()"
    subprocess.run([sys.executable, "-c", made], check=True, capture_output=True)
    return file


def seconds(what: str, how: str, database: Path) -> tuple[float, float]:
    """Of the search, and of the process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "nothing.py").write_text(TRAINABLE)
        shutil.copy(database, folder / "mlflow.db")
        command = [sys.executable, "-c", SCRIPTS[what], how, f"sqlite:///{folder}/mlflow.db", str(folder / "ray")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
        begun = time.monotonic()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        whole = time.monotonic() - begun
        assert done.returncode == 0, done.stderr[-2000:]
        return float(done.stdout.split()[-1]), whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=SCRIPTS, action="append", help="may be repeated; all if left out")
    arguments = parser.parse_args()
    rounds, chosen = arguments.rounds, arguments.only or list(SCRIPTS)
    took: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        database = empty_database(Path(scratch))
        for number in range(rounds):
            for what in chosen:
                for how in ("with", "without") if number % 2 else ("without", "with"):
                    took.setdefault((what, how), []).append(seconds(what, how, database))
                    print(json.dumps([what, how, *took[what, how][-1]]), file=sys.stderr, flush=True)
    for place, name in enumerate(("search", "process")):
        for what in chosen:
            pairs = zip(took[what, "with"], took[what, "without"], strict=True)
            ratios = [a[place] / b[place] for a, b in pairs]
            times = {how: statistics.median(t[place] for t in took[what, how]) for how in ("without", "with")}
            print(
                f"{name:8} {what:15} without {times['without']:5.1f} s, with {times['with']:5.1f} s: ratio "
                f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}, {rounds} pairs)"
            )


if __name__ == "__main__":
    main()
