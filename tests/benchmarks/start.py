"""What a command costs besides its trials: two checkouts of tuner, side by side.

    git worktree add /tmp/before 44f1e2e
    python tests/benchmarks/start.py /tmp/before . [--repeats 5]

60 trials that report twice and do nothing else; the sides take turns. Of each command: seconds to the first report,
seconds in all, and the CPU seconds of all its processes to the first report and in all, which depend less on what else
the machine does. Ratios are of the second checkout to the first, median and range.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

TRAINABLE = """
def train(config):
    from ray import tune

    for step in (1, 2):
        tune.report({"step": step, "score": config["x"]})
"""
EXPERIMENT = """
trainable: nothing.py:train
search_space: {x: {uniform: [0.0, 1.0]}}
objective: {metric: score, mode: max}
budget: {trials: 60}
resources: {cpu: 1, gpu: 0}
"""
COMMANDS = {"run": ["run", "e.yaml"], "validate": ["validate", "e.yaml"], "--help": ["--help"]}


def measure(command: list[str], folder: Path, checkout: Path) -> dict[str, float]:
    """Seconds of one command, and CPU seconds of it and its descendants."""
    environment = os.environ | {"PYTHONPATH": str(checkout.resolve())}
    begun, first = time.perf_counter(), {}
    process = subprocess.Popen(
        [sys.executable, "-m", "tuner", *command],
        cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    used: dict[int, float] = {}

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if "takes the lead" in line and not first:
                first.update(first_s=time.perf_counter() - begun, first_cpu_s=sum(used.values()))

    reader = threading.Thread(target=read)
    reader.start()
    root = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            family = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            break
        for member in family:
            try:
                spent = member.cpu_times()
            except psutil.NoSuchProcess:
                continue
            used[member.pid] = spent.user + spent.system
        time.sleep(0.02)
    status = process.wait()
    reader.join()
    assert status == 0, command
    return {**first, "all_s": time.perf_counter() - begun, "all_cpu_s": sum(used.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs=2, type=Path, metavar="CHECKOUT")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=COMMANDS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "nothing.py").write_text(TRAINABLE)
        (folder / "e.yaml").write_text(EXPERIMENT)
        for name, command in COMMANDS.items():
            if given.only in (None, name):
                rounds = []
                for number in range(given.repeats):
                    both = [(side, measure(command, folder, side)) for side in given.checkouts[:: 1 - 2 * (number % 2)]]
                    rounds.append(dict(both))
                show(name, [[one[side] for one in rounds] for side in given.checkouts])


def show(name: str, sides: list[list[dict[str, float]]]) -> None:
    for key in sides[0][0]:
        before, after = ([one[key] for one in side] for side in sides)
        ratios = sorted(new / old for old, new in zip(before, after, strict=True))
        print(
            f"{name:<9}{key:<12} before {statistics.median(before):6.2f}, after {statistics.median(after):6.2f}: "
            f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}, n={len(ratios)})",
            flush=True,
        )


if __name__ == "__main__":
    main()
