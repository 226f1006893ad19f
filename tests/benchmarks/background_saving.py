"""What a checkpoint an epoch costs when it is saved at once, and while the training continues.

    python tests/benchmarks/background_saving.py [--rounds 5] [--sizes 10 100] [--epochs 8]

A network whose weights and momentum have so many MiB trains on one thread of the CPU, or on the GPU, in epochs of a
second or so. (On the CPU a state is saved at once in the product; here it is not.) Each report copies its checkpoint
into a folder on the disk, as Ray does; none of them decides anything.

Measured on a CPU with 2 cores (3 rounds), 100 MiB: an epoch of 0.777 s gets longer by 0.034 s (0.031 to 0.045) at once,
and by 0.104 s (0.073 to 0.129) in the background: the thread takes memory and cores of the training.

The ways take turns, in the other order in each second round. Median (lowest to highest) of the seconds of an epoch, and
of the part of it that a checkpoint adds to an epoch without one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402
from fused import spread  # noqa: E402
from torch import nn  # noqa: E402

from tuner.execution.stand_in_session import StandInSession, in_place_of_rays  # noqa: E402
from tuner.training import background_saving, checkpointing, reporting  # noqa: E402
from tuner.training.background_saving import BackgroundSaver  # noqa: E402

WAYS = ("no checkpoints", "at once", "in the background")
WIDTH = 1024
SECONDS = 1.0


class Session(StandInSession):
    """Copies the checkpoints that are reported."""

    def report(self, metrics: dict[str, Any], checkpoint: Any = None) -> None:
        if checkpoint is not None:
            shutil.copytree(checkpoint.path, Path(self.trial_dir, str(metrics["epoch"])), dirs_exist_ok=True)

    def will_decide(self, metrics: dict[str, Any]) -> bool:
        return False


def epoch_seconds(way: str, mib: float, epochs: int, steps: int, device: torch.device) -> float:
    """Mean seconds of an epoch of ``steps`` steps, in one of `WAYS`."""
    layers = max(1, round(mib * 2**20 / (2 * 4 * WIDTH**2)))  # weights and momentum, in fp32
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(layers)]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x = torch.randn(64, WIDTH, device=device)

    def train(epochs: int, saver: BackgroundSaver | None, saves: bool) -> None:
        for epoch in range(1, epochs + 1):
            for _ in range(steps):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            loss = model(x).square().mean().item()
            metrics = {"epoch": epoch, "loss": loss}
            if saver is not None:
                saver.report(metrics, epoch=epoch, model=model, optimizer=optimizer)
            elif saves:
                with tempfile.TemporaryDirectory() as folder:
                    checkpointing.save(
                        folder, epoch=epoch, metrics=metrics, durable=False, model=model, optimizer=optimizer
                    )
                    reporting.report(metrics, checkpoint=folder)

    with tempfile.TemporaryDirectory(dir=ROOT) as folder, in_place_of_rays(Session("t", None, folder)):
        train(1, None, False)
        began = time.perf_counter()
        if way == WAYS[2]:
            with BackgroundSaver() as saver:
                train(epochs, saver, True)
        else:
            train(epochs, None, way == WAYS[1])
        return (time.perf_counter() - began) / epochs


def table(sizes: Sequence[float], epochs: int, rounds: int) -> None:
    """Prints it."""
    torch.set_num_threads(1)
    background_saving.is_on_gpu = lambda content: True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print("| MiB | epoch without (s) | a checkpoint at once adds (s) | in the background (s) | part of it |")
    print("|---|---|---|---|---|", flush=True)
    for mib in sizes:
        steps = max(1, round(SECONDS / epoch_seconds(WAYS[0], mib, 1, 1, device)))
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(rounds):
            for way in WAYS[:: 1 if number % 2 == 0 else -1]:
                found[way].append(epoch_seconds(way, mib, epochs, steps, device))
        without, at_once, background = (found[way] for way in WAYS)
        added = [b - a for a, b in zip(without, at_once, strict=True)]
        less = [b - a for a, b in zip(without, background, strict=True)]
        part = statistics.median(less) / statistics.median(added)
        print(f"| {mib:g} | {spread(without)} | {spread(added)} | {spread(less)} | {part:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=float, nargs="+", default=[10, 100])
    parser.add_argument("--epochs", type=int, default=8)
    given = parser.parse_args()
    table(given.sizes, given.epochs, given.rounds)


if __name__ == "__main__":
    main()
