"""What to train of a pretrained network with little data: a few images of five shapes that it has not seen.

    python tests/benchmarks/freezing.py [--seeds 5]

Trains `trainables.images` for 9 epochs from scratch, and from the pretrained weights with nothing, the stem, or all but
the last layer frozen, with five learning rates each. The best of these by validation accuracy counts. Prints its
median and range over the seeds.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile

import tuner

MODES = {
    "from scratch": {"pretrained": False, "freeze": "none"},
    "pretrained, all trains": {"pretrained": True, "freeze": "none"},
    "pretrained, stem frozen": {"pretrained": True, "freeze": "stem"},
    "pretrained, all but the last layer frozen": {"pretrained": True, "freeze": "all_but_head"},
}
RATES = [1e-3, 3e-3, 1e-2, 3e-2, 1e-1]
EPOCHS = 9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    print("| images a class | start | validation accuracy |\n|---|---|---|")
    for per_class, (name, mode) in itertools.product((5, 30), MODES.items()):
        with tempfile.TemporaryDirectory() as folder:
            results = tuner.run(
                {
                    "trainable": "trainables.images:train",
                    "params": {
                        "data": "shapes5_few",
                        "epochs": EPOCHS,
                        "schedule": "one_cycle",
                        "per_class": per_class,
                        **mode,
                    },
                    "search_space": {
                        "lr": {"grid_search": RATES},
                        "seed": {"grid_search": list(range(options.seeds))},
                    },
                    "objective": {"metric": "val_accuracy", "mode": "max"},
                    "search": {"kind": "grid"},
                    "resources": {"cpu": 1, "gpu": 0},
                },
                storage=folder,
                say=lambda text: None,
            )
            frame = results.frame()
            frame["seed"] = frame["trial_id"].map({trial.id: trial.first_config["seed"] for trial in results.trials})
        last = frame[frame["epoch"] == EPOCHS]
        best = last.groupby("seed")["val_accuracy"].max()
        print(f"| {per_class} | {name} | {best.median():.3f} ({best.min():.3f} to {best.max():.3f}) |", flush=True)


if __name__ == "__main__":
    main()
