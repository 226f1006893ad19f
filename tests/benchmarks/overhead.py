"""What a trial costs besides its training: tuner against plain ``tune.Tuner``, side by side in one process.

    python tests/benchmarks/overhead.py [--trials 60] [--repeats 3]

Each of the trials imports torch and reports once; two run at a time on two CPUs; one Ray session serves both sides,
which take turns. ``tuner.run`` is timed whole: plan, run folder, search, best trial. ``Tuner.fit`` runs the same
function with Ray's defaults.

Measured on 2 cores of an AMD EPYC (Python 3.11, Ray 2.60, torch 2.15), 60 trials, 3 repeats: Ray's defaults 0.65, 0.66
and 0.49 trials/s, tuner 16.92, 15.99 and 9.26; median ratio 24.4 (18.8 to 25.9; other work ran during the third).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import textwrap
import time
from pathlib import Path

TRAINABLE = """
def train(config):
    import torch
    from ray import tune

    tune.report({"score": float(torch.tensor(config["x"]) ** 2)})
"""


def plain(trials: int, folder: Path) -> float:
    """Seconds of ``Tuner.fit`` with Ray's defaults."""
    from overhead_trainable import train
    from ray import tune

    begun = time.perf_counter()
    results = tune.Tuner(
        train,
        param_space={"x": tune.uniform(-1, 1)},
        tune_config=tune.TuneConfig(metric="score", mode="min", num_samples=trials),
        run_config=tune.RunConfig(storage_path=str(folder / "plain"), name=str(time.time_ns())),
    ).fit()
    assert len(results) == trials
    assert not results.num_errors
    return time.perf_counter() - begun


def ours(trials: int, folder: Path) -> float:
    """Seconds of ``tuner.run``."""
    from tuner import run

    experiment = {
        "trainable": f"{folder}/overhead_trainable.py:train",
        "search_space": {"x": {"uniform": [-1, 1]}},
        "objective": {"metric": "score", "mode": "min"},
        "budget": {"trials": trials},
    }
    begun = time.perf_counter()
    results = run(experiment, storage=folder / "ours", name=str(time.time_ns()))
    assert results.count("completed") == trials
    return time.perf_counter() - begun


@contextlib.contextmanager
def quiet(log: Path):
    """Within: everything that is printed goes to ``log``."""
    sys.stdout.flush()
    saved = os.dup(1), os.dup(2)
    with log.open("a") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(saved[0], 1)
            os.dup2(saved[1], 2)


def main() -> None:
    """Measures, and prints one line a repeat and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "overhead_trainable.py").write_text(textwrap.dedent(TRAINABLE))
        sys.path[:0] = [str(folder), str(Path(__file__).parents[2])]
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
        ratios, rates = [], {"plain": [], "ours": []}
        for repeat in range(options.repeats):
            with quiet(folder / "log"):
                import ray

                ray.init(address="local", num_cpus=2, include_dashboard=False)
                seconds = {"plain": plain(options.trials, folder), "ours": ours(options.trials, folder)}
                ray.shutdown()
            for side, value in seconds.items():
                rates[side].append(options.trials / value)
            ratios.append(seconds["plain"] / seconds["ours"])
            print(f"repeat {repeat + 1}: {report(rates['plain'][-1:], rates['ours'][-1:], ratios[-1:])}", flush=True)
    spread = f"{min(ratios):.1f} to {max(ratios):.1f}"
    print(f"median of {len(ratios)}: {report(rates['plain'], rates['ours'], ratios)} ({spread})")


def report(plain: list[float], ours: list[float], ratios: list[float]) -> str:
    """Medians in words."""
    rates = statistics.median(plain), statistics.median(ours)
    return f"Ray's defaults {rates[0]:.2f} trials/s, tuner {rates[1]:.2f}, ratio {statistics.median(ratios):.1f}"


if __name__ == "__main__":
    main()
