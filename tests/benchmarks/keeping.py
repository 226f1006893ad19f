"""What `tuner.training.keep` is worth to trials of a few seconds: trials an hour, and the same results.

    python tests/benchmarks/keeping.py [--before COMMIT] [--trials 16] [--rounds 3]

Three searches run with this version and with an earlier one, which made everything anew for each trial. They take
turns, in the other order in each second round. Trials an hour count from the end of the first trial to that of the
last one: the start of Ray and the first import of torch are the same for both.

- ``images``: `trainables.images`, 3 epochs of its 150 images;
- ``table``: 800,000 rows of a CSV file with 20 columns, and 1,500 steps of a small network;
- ``compiled``: 500 steps of a compiled network of eight layers, on random numbers.

One trial at a time, one CPU each. The losses of both versions are compared digit by digit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "cdfe838"
"""The last version without `keep`."""
ONE_SEARCH = """
import json, sys
from tuner import run
from tuner.visualization.timeline import chronicle
experiment, storage = json.loads(sys.argv[1])
results = run(experiment, storage=storage, say=lambda text: None)
losses = [trial.reports[-1].metrics[experiment["objective"]["metric"]] for trial in results.trials]
ends = sorted(span.end for span in chronicle(results).stretches)
print(json.dumps([(len(ends) - 1) / (ends[-1] - ends[0]) * 3600, losses]))
"""


def experiments(scratch: Path, trials: int) -> dict[str, dict]:
    """The searches by name."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800_000, 20))
    frame = pd.DataFrame(x, columns=[f"x{n}" for n in range(20)]).assign(y=np.tanh(x[:, 0] * x[:, 1]) + x[:, 2])
    frame.to_csv(scratch / "rows.csv", index=False)
    trials_file = scratch / "keeping_trials.py"
    trials_file.write_text((ROOT / "tests/benchmarks/keeping_trials.py").read_text())
    common = {
        "search": {"kind": "random", "seed": 0},
        "scheduler": {"kind": "fifo"},
        "budget": {"trials": trials},
        "resources": {"cpu": 1, "gpu": 0, "max_concurrent_trials": 1},
    }
    on_table = {
        "search_space": {"lr": {"loguniform": [1e-3, 1e-1]}},
        "params": {"rows": str(scratch / "rows.csv")},
        "objective": {"metric": "loss", "mode": "min"},
    }
    return {
        "images": {
            "trainable": "trainables.images:train",
            "search_space": {"lr": {"loguniform": [1e-4, 1e-1]}},
            "params": {"epochs": 3},
            "objective": {"metric": "val_loss", "mode": "min"},
            **common,
        },
        "table": {"trainable": f"{trials_file}:table", **on_table, **common},
        "compiled": {"trainable": f"{trials_file}:compiled", **on_table, **common},
    }


def measure(version: Path, experiment: dict, storage: Path) -> tuple[float, list[float]]:
    """Trials an hour, and the last value of each trial."""
    given = json.dumps([experiment, str(storage / str(time.time_ns()))])
    done = subprocess.run(
        [sys.executable, "-c", ONE_SEARCH, given], cwd=version, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    rate, losses = json.loads(done.stdout.splitlines()[-1])
    return rate, losses


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=BEFORE, help="the commit to compare with")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        earlier = scratch / "earlier"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(earlier)], check=True)
        subprocess.run(["git", "checkout", "-q", given.before], cwd=earlier, check=True)
        print("| search | before, trials an hour | with `keep` | ratio | the same losses |\n|---|---|---|---|---|")
        for name, experiment in experiments(scratch, given.trials).items():
            rates: dict[Path, list[float]] = {earlier: [], ROOT: []}
            losses = []
            for number in range(given.rounds):
                for version in (earlier, ROOT) if number % 2 == 0 else (ROOT, earlier):
                    rate, found = measure(version, experiment, scratch)
                    rates[version].append(rate)
                    losses.append(found)
            same = all(one == losses[0] for one in losses)
            ratios = [after / before for before, after in zip(rates[earlier], rates[ROOT], strict=True)]
            row = (name, spread(rates[earlier]), spread(rates[ROOT]), spread(ratios), "yes" if same else "no")
            print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
