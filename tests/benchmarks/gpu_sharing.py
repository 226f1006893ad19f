"""Four trials at a time on one GPU (``gpu: 0.25``) against one at a time (``gpu: 1``).

    python tests/benchmarks/gpu_sharing.py [--trials 16] [--epochs 10] [--rounds 3]

`trainables.cifar` on its generated images, random search without early stopping, a thread a trial; both ways take
turns in one Ray session, so that in all rounds but the first the processes are warm. Said are trials an hour (from the
first trial's start to the last one's end), how busy the GPU was and the most of its memory in use meanwhile (NVML,
every 2 s), each the median over the rounds with the spread, and the ratio of the pairs.

Not measured yet: no GPU was at hand.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tuner import run  # noqa: E402
from tuner.execution.gpus import READ_EVERY_S, Gpus  # noqa: E402

SHARES = (1.0, 0.25)


class Watched:
    """Within: notes the first GPU's use (%) and memory (GB)."""

    def __init__(self) -> None:
        self.use: list[int] = []
        self.most_gb = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        gpus = Gpus()
        while not self._over.wait(READ_EVERY_S):
            first, *_ = gpus.read()
            self.use.append(first.use)
            self.most_gb = max(self.most_gb, first.used_bytes / 1e9)


def measured(share: float, trials: int, epochs: int, storage: Path) -> tuple[float, float, float]:
    """Trials an hour, mean use of the GPU in per cent, GB in use at most."""
    experiment = {
        "name": f"share{share:g}",
        "trainable": "trainables.cifar:train",
        "params": {"dataset": "shapes10", "epochs": epochs},
        "search_space": str(ROOT / "search_spaces/cifar.yaml"),
        "objective": {"metric": "val_accuracy", "mode": "max"},
        "search": {"kind": "random", "seed": 0},
        "budget": {"trials": trials},
        "resources": {"cpu": 1, "gpu": share},
    }
    with Watched() as gpu:
        results = run(experiment, storage=storage, say=lambda text: None)
    assert results.count("completed") == trials
    return trials / results.provenance["elapsed_s"] * 3600, statistics.mean(gpu.use), gpu.most_gb


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if not Gpus().read():
        sys.exit("error: no GPU here that NVIDIA's driver tells of; what is compared is trials on one")
    import ray

    ray.init("local", num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False)
    found: dict[float, list[tuple[float, float, float]]] = {share: [] for share in SHARES}
    with tempfile.TemporaryDirectory() as storage:
        for number in range(given.rounds):
            for share in SHARES if number % 2 else reversed(SHARES):
                found[share].append(measured(share, given.trials, given.epochs, Path(storage)))
                print(share, *found[share][-1], file=sys.stderr, flush=True)
    print("| resources | trials an hour | GPU busy (%) | GPU memory at most (GB) |\n|---|---|---|---|")
    for share in SHARES:
        print(f"| `gpu: {share:g}` | {' | '.join(map(spread, zip(*found[share], strict=True)))} |")
    whole, quarter = ([trials for trials, *_ in found[share]] for share in SHARES)
    print(
        f"trials an hour, ratio: {spread([b / a for a, b in zip(whole, quarter, strict=True)])}, {given.rounds} pairs"
    )


if __name__ == "__main__":
    main()
