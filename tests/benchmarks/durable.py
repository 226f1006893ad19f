"""What it costs that a checkpoint is on the disk before an older one is deleted.

    python tests/benchmarks/durable.py [--folder FOLDER] [--rounds 5] [--epochs 20] [--seconds 0.2] [--sizes 0.1 10]

A trial's reports as its process makes them: epochs of so many seconds, each with a checkpoint of so many MiB, of which
checksums are taken, a copy is made in a folder below FOLDER (on a disk, not in memory), and the manifest is written;
with and without waiting for the disk, in turn. Median seconds of each; median and spread of the ratio of each pair.

Measured on 2 cores (AMD EPYC), Ray 2.60, beside much other work on the same cloud disk:
  0.1 MiB: 4.28 s, without 4.13 s; ratio 1.030 (0.941 to 1.068)
  10 MiB: 4.97 s, without 4.77 s; ratio 1.026 (1.014 to 1.074)
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ray.tune import Checkpoint  # noqa: E402

from tuner.execution import report_interceptor  # noqa: E402
from tuner.schedulers.fifo import Fifo  # noqa: E402
from tuner.storage.manifest import make_durable  # noqa: E402


class Session:
    """Copies what is reported, as Ray does."""

    def __init__(self, storage: Path) -> None:
        self._storage = storage
        self.storage = SimpleNamespace(insist=lambda operation: operation())
        self._reports = 0

    def report(self, metrics: dict[str, float], checkpoint: Any = None) -> None:
        self._reports += 1
        target = self._storage / f"trial/checkpoint_{self._reports:06}"
        shutil.copytree(checkpoint.path, target)
        copy = Checkpoint.from_directory(str(target))
        self._report_training_result(SimpleNamespace(checkpoint=copy, metrics=metrics))

    def _report_training_result(self, result: Any) -> None:
        if self._reports > 2:
            shutil.rmtree(self._storage / f"trial/checkpoint_{self._reports - 2:06}")


def trial(reported: Path, storage: Path, given: argparse.Namespace, waits: bool) -> float:
    """Seconds that a trial takes."""
    report_interceptor.make_durable = make_durable if waits else lambda folder: None  # type: ignore[attr-defined]
    session = Session(storage)
    kept = report_interceptor.ReportInterceptor(session, 1, Fifo())  # type: ignore[arg-type]
    begun = time.perf_counter()
    for epoch in range(given.epochs):
        time.sleep(given.seconds)
        session.report({"epoch": epoch}, Checkpoint.from_directory(str(reported)))
    kept.settle()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=".")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.1, 10])
    given = parser.parse_args()
    for size in given.sizes:
        with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
            reported = Path(scratch, "reported")
            reported.mkdir()
            (reported / "state.pt").write_bytes(os.urandom(int(size * 2**20)))
            pairs = []
            for number in range(given.rounds):
                took = {}
                for waits in (True, False) if number % 2 else (False, True):
                    took[waits] = trial(reported, Path(scratch, f"{number}{waits}"), given, waits)
                pairs.append((took[True], took[False]))
            with_, without = (statistics.median(times) for times in zip(*pairs, strict=True))
            ratios = sorted(a / b for a, b in pairs)
            spread = f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
            print(f"  {size:g} MiB: {with_:.2f} s, without {without:.2f} s; ratio {spread}", flush=True)


if __name__ == "__main__":
    main()
