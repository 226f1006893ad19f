"""How busy a cluster is kept by short trials, and what each of them costs the driver.

    python tests/benchmarks/placement.py [--trials 1000] [--seconds 1] [--sides tuner ray] [-o DIR]

Four Ray nodes with 4 CPUs each in name, all on this machine; the trials ask for one CPU each, sleep, and report once
when they began and ended by their own clock. Busy: the sum of these times between the first and the last start, as a
share of 16 times that span. Each side is a driver process of its own on the same cluster, in turn; Ray Tune with
``reuse_actors=True``, with which it is faster. The driver's processor time and memory are those of its process (the
trials are elsewhere), noted with every hundredth end. Writes placement.png: how many slots were idle, by time.

Measured on 2 cores (AMD EPYC), Ray 2.60, 1,000 trials of 1 s, tuner, Ray Tune, and tuner again: tuner busy 94.7 and
95.7 %, the latter in 65.9 s, 7.7 ms of a processor a trial in the first tenth and 8.6 in the last, 240 MB after 100
trials and 280 after 1,000; Ray Tune 70.9 s, 88.9 %, 16.2 and 15.1 ms, 794 and 846 MB. Ideal: 62.5 s. 10,000 trials of
0.3 s (``--sides tuner``): 229 s, ideal 187.5 s, busy 82.1 %; 8.6 ms of a processor a trial in the first tenth, 7.6 in
the last; 240 MB after 100 trials and 603 after 10,000.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NODES, CPUS = 4, 4
SLOTS = NODES * CPUS

TRAINABLE = """
import time
from ray import tune

def train(config):
    begun = time.time()
    time.sleep(config["seconds"])
    tune.report({"x": config["x"], "begun": begun, "ended": time.time()})
"""


class Driver:
    """Notes what this process has cost, every hundredth trial."""

    def __init__(self) -> None:
        self.trials, self.noted = 0, [_cost(0)]

    def started(self, results: Any) -> None: ...
    def retried(self, trial: Any, failure: Any) -> None: ...
    def reported(self, trial: Any, report: Any) -> None: ...
    def finished(self, results: Any) -> None: ...
    def tick(self) -> None: ...

    def ended(self, trial: Any) -> None:
        self.trials += 1
        if self.trials % 100 == 0:
            self.noted.append(_cost(self.trials))


def _cost(trials: int) -> tuple[int, float, float]:
    """Trials, processor seconds, MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return trials, time.process_time(), pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def by_tuner(address: str, trials: int, seconds: float) -> tuple[list[tuple[float, float]], Driver]:
    from tuner import run

    driver = Driver()
    experiment = {
        "name": "placement",
        "trainable": "sleeps.py:train",
        "search_space": {"x": {"uniform": [0, 1]}, "seconds": seconds},
        "objective": {"metric": "x", "mode": "min"},
        "search": {"kind": "random", "seed": 0},
        "budget": {"trials": trials},
        "resources": {"cpu": 1, "gpu": 0},
    }
    results = run(experiment, storage="runs", name="r", address=address, listeners=[driver], say=print)
    last = [trial.reports[-1].metrics for trial in results.trials]
    return [(m["begun"], m["ended"]) for m in last], driver


def by_ray(address: str, trials: int, seconds: float) -> tuple[list[tuple[float, float]], Driver]:
    import ray
    from ray import tune
    from sleeps import train

    ray.init(address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}})
    driver = Driver()

    class Ended(tune.Callback):
        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            driver.ended(trial)

    results = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={"x": tune.uniform(0, 1), "seconds": seconds},
        tune_config=tune.TuneConfig(num_samples=trials, metric="x", mode="min", reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(Path("ray").resolve()), verbose=0, callbacks=[Ended()]),
    ).fit()
    return [(result.metrics["begun"], result.metrics["ended"]) for result in results], driver


SIDES = {"tuner": by_tuner, "ray": by_ray}


def one_side(side: str, address: str, trials: int, seconds: float, output: Path) -> None:
    """In a process of its own: searches, and writes what was found."""
    spans, driver = SIDES[side](address, trials, seconds)
    output.write_text(json.dumps({"spans": spans, "noted": driver.noted}))


def busy(spans: list[tuple[float, float]]) -> float:
    """The share of all slots' time between the first and the last start in which a trial ran."""
    first, last = min(spans)[0], max(spans)[0]
    return sum(min(end, last) - begin for begin, end in spans) / (SLOTS * (last - first))


def idle(spans: list[tuple[float, float]]) -> tuple[list[float], list[int]]:
    """The moments at which the number of idle slots changes, from the first start on, and the numbers."""
    moments = sorted([(begin, -1) for begin, _ in spans] + [(end, 1) for _, end in spans])
    first = moments[0][0]
    return [at - first for at, _ in moments], list(itertools.accumulate((c for _, c in moments), initial=SLOTS))[1:]


def told(side: str, found: dict[str, Any], seconds: float) -> str:
    """The measures of one side, in lines."""
    spans, noted = found["spans"], found["noted"]
    whole = max(end for _, end in spans) - min(spans)[0]
    lines = [
        f"{side}: {len(spans):,} trials of {seconds:g} s in {whole:.1f} s "
        f"(ideal {len(spans) * seconds / SLOTS:.1f} s), busy {busy(spans):.1%}"
    ]
    steps = list(itertools.pairwise(noted[1:]))  # the first hundred have the start of everything
    costs = [(b[1] - a[1]) / (b[0] - a[0]) * 1e3 for a, b in steps]
    if costs:
        tenth = max(1, len(costs) // 10)
        early, late = statistics.median(costs[:tenth]), statistics.median(costs[-tenth:])
        lines.append(
            f"  driver: {early:.1f} ms of a processor a trial in the first tenth, {late:.1f} ms in the last; "
            f"{noted[1][2]:.0f} MB after {noted[1][0]} trials, {noted[-1][2]:.0f} MB after {noted[-1][0]:,}"
        )
    return "\n".join(lines)


def figure(found: dict[str, dict[str, Any]], seconds: float, path: Path) -> None:
    """Idle slots by time, one panel a side."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    drawn, axes = plt.subplots(len(found), 1, figsize=(9, 2.6 * len(found)), layout="constrained", squeeze=False)
    longest = max(idle(side["spans"])[0][-1] for side in found.values())
    for axis, (side, got) in zip(axes[:, 0], found.items(), strict=True):
        moments, free = idle(got["spans"])
        axis.fill_between(moments, free, step="post", color="#0072B2", linewidth=0)
        axis.set(xlim=(0, longest), ylim=(0, SLOTS), yticks=range(0, SLOTS + 1, 4), ylabel=f"idle slots of {SLOTS}")
        axis.set_title(f"{'Ray Tune' if side == 'ray' else side}: busy {busy(got['spans']):.1%}", fontsize=10)
    axes[-1, 0].set_xlabel(f"seconds since the first start; trials of {seconds:g} s")
    drawn.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="folder of placement.png")
    parser.add_argument("--one", nargs=3, metavar=("SIDE", "ADDRESS", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one_side(given.one[0], given.one[1], given.trials, given.seconds, Path(given.one[2]))
        return

    from ray.cluster_utils import Cluster

    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sleeps.py").write_text(TRAINABLE)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), name])
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": CPUS, "include_dashboard": False})
        try:
            for _ in range(NODES - 1):
                cluster.add_node(num_cpus=CPUS)
            for side in given.sides:
                options = ["--trials", str(given.trials), "--seconds", str(given.seconds)]
                command = [sys.executable, __file__, *options, "--one", side, cluster.address, f"{name}/{side}.json"]
                subprocess.run(command, cwd=folder, check=True)
                found[side] = json.loads((folder / f"{side}.json").read_text())
                print(told(side, found[side], given.seconds), flush=True)
        finally:
            cluster.shutdown()
    given.output.mkdir(parents=True, exist_ok=True)
    figure(found, given.seconds, given.output / "placement.png")


if __name__ == "__main__":
    main()
