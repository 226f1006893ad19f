"""What a command costs besides its trials: two checkouts of tuner, side by side.

    git worktree add /tmp/before 44f1e2e
    python tests/benchmarks/start.py /tmp/before . [--repeats 3] [--only run]

60 trials that report twice and do nothing else; the sides take turns. Of each command: seconds to the first report,
seconds in all, and the CPU seconds of all its processes to the first report and in all, which depend less on what else
the machine does. Ratios are of the second checkout to the first, median and range. Linux only. No round begins after
`--minutes`: what is not measured then is not shown.

Given on 2 busy cores, 44f1e2e against what has no agent of the dashboard (2 rounds of `run`): first report 0.52 of the
seconds (0.51 to 0.53) and 0.55 of the CPU (0.54 to 0.55); in all 0.49 (0.47 to 0.51) and 0.56 (0.55 to 0.57).
`validate` of the quickstart: 0.87 of the CPU (4 rounds). It is not halved, as it imports the user's module to check it:
of 2.0 s `import torch` takes 1.4; with a module that imports nothing `validate` takes 0.43 s in all (3 rounds).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
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
    """Seconds of one command, and CPU seconds of it and its descendants, each as last seen."""
    environment = os.environ | {"PYTHONPATH": str(checkout.resolve())}
    begun, found = time.perf_counter(), {}
    used: dict[int, float] = {}
    with (folder / "stderr").open("w") as stderr, (folder / "stderr").open() as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "tuner", *command],
            cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=stderr,
        )  # fmt: skip
        while process.poll() is None:
            for member in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    spent = member.cpu_times()
                    used[member.pid] = spent.user + spent.system
            if not found and "takes the lead" in told.read():
                found = {"first_s": time.perf_counter() - begun, "first_cpu_s": sum(used.values())}
            time.sleep(0.05)
    assert process.returncode == 0, (folder / "stderr").read_text()
    return {**found, "all_s": time.perf_counter() - begun, "all_cpu_s": sum(used.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs=2, type=Path, metavar="CHECKOUT")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--only", choices=COMMANDS)
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "nothing.py").write_text(TRAINABLE)
        (folder / "e.yaml").write_text(EXPERIMENT)
        for name, command in COMMANDS.items():
            if given.only in (None, name):
                rounds = []
                for number in range(given.repeats):
                    if time.monotonic() > until:
                        break
                    both = [(side, measure(command, folder, side)) for side in given.checkouts[:: 1 - 2 * (number % 2)]]
                    rounds.append(dict(both))
                if rounds:
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
