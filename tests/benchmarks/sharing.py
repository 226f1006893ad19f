"""What `resources: {cpu: share}` takes, and how much faster all trials of a machine are with it.

    python tests/benchmarks/sharing.py [--rounds 3]

Four trainables of ``sharing_trials.py`` are measured as `run` measures them before a search: one trial with all cores,
2 and more trials that share them, and, as a script does that sets no threads, as many trials as cores with all threads
each. Reports an hour of all trials together, median, lowest to highest. The ratio is to one trial with all cores, in
the same round. Nothing else may run on the machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from tuner.execution.sharing import Level, Measured, fastest, levels, measure  # noqa: E402
from tuner.execution.trial_context import TrialContext  # noqa: E402
from tuner.experiment.resources import Resources  # noqa: E402
from tuner.plan.cluster import this_machine  # noqa: E402

TRAINABLES = ("small", "convolutions", "large", "waits")


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def measured(name: str, level: Level, memory: float) -> Measured:
    file = Path(__file__).with_name("sharing_trials.py")
    with tempfile.TemporaryDirectory() as folder:
        task = TrialContext(f"{file}:{name}", (ROOT,), Path(folder), {}, (), 0, level.cpu, {"CPU": level.cpu}, 1)
        (found,) = measure(task, {}, [level], memory)
    if found.problem:
        sys.exit(f"{name}, {level}: {found.problem}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    machine = this_machine().nodes[0].resources
    cores = int(machine["CPU"])
    shared = levels(Resources(cpu="share", gpu=0), machine, trials=cores)
    crowded = Level(cores, float(cores))
    print("| trainable | at once | threads each | reports an hour | ratio | taken |\n|---|---|---|---|---|---|")
    for name in TRAINABLES:
        rates: dict[Level, list[float]] = {level: [] for level in [*shared, crowded]}
        taken: Counter[Level] = Counter()
        for number in range(rounds):
            found = {}
            for level in list(rates) if number % 2 == 0 else reversed(list(rates)):
                found[level] = measured(name, level, machine["memory"])
                rates[level].append(found[level].rate)
            best = fastest(found[level] for level in shared)
            assert best is not None
            taken[best.level] += 1
        for level, values in rates.items():
            ratios = [value / whole for value, whole in zip(values, rates[shared[0]], strict=True)]
            times = f"{taken[level]} of {rounds}" if level in shared else ""
            cells = (name, str(level.trials), f"{level.cpu:g}", spread(values), spread(ratios), times)
            print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
