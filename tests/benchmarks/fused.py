"""Eight trainings of `trainables.digits` as one model, beside the same eight in turn. One core.

    python tests/benchmarks/fused.py [--rounds 3]

- ``functions``: `train` eight times, and `train_many` once, in this process; reports are thrown away. With checkpoints,
  as they are, and without.
- ``searches``: eight trials one after the other, and five with `repeat: {over: seed, times: 8, at_once: true}`, each
  with a report and a checkpoint an epoch. The median running time of a trial counts, as the first one of a process
  imports scikit-learn. The reports of the first of the five are the means of those of the eight.
- ``fused``: forty seeds as separate trials on Ray with `resources: {fused: 8}`. From the end of the first group on, as
  their processes start one after the other.
- ``loop``: the same eight as separate trials that `tuner.train_fused` trains as one, in this process and without Ray.

The ways take turns, in the other order in each second round. Median (lowest to highest).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"

COUNT, EPOCHS = 8, 30


def functions(rounds: int) -> None:
    import torch
    from ray import tune

    from trainables import digits
    from tuner.training import checkpointing

    torch.set_num_threads(1)
    configs = [digits.Config(epochs=EPOCHS, seed=seed) for seed in range(COUNT)]
    losses: dict[str, list[float]] = {}

    def in_turn() -> None:
        losses["in turn"] = []
        for config in configs:
            with mock.patch.object(tune, "report", lambda metrics, checkpoint: losses["in turn"].append(loss(metrics))):
                digits.train(config)

    def as_one() -> None:
        found: list[list[float]] = [[] for _ in configs]

        def report(number: int, metrics: dict[str, Any], save: Callable[[str], None]) -> bool:
            with tempfile.TemporaryDirectory() as folder:
                save(folder)
            found[number].append(loss(metrics))
            return True

        digits.train_many(configs, report)
        losses["as one"] = [value for one in found for value in one]

    def loss(metrics: dict[str, Any]) -> float:
        return float(metrics["val_loss"])

    with mock.patch.object(tune, "get_checkpoint", return_value=None):
        for name, nothing in (("with checkpoints", False), ("without", True)):
            with mock.patch.object(checkpointing, "save") if nothing else mock.MagicMock():
                row(f"functions, {name}", rounds, in_turn, as_one)
    apart = max(abs(a - b) for a, b in zip(losses["in turn"], losses["as one"], strict=True))
    print(f"\nlargest difference of a val_loss: {apart:.1e}\n", flush=True)


def searches(rounds: int) -> None:
    import ray

    from tuner import run
    from tuner.execution.auth import make_token

    make_token()
    os.environ["PYTHONPATH"] = str(ROOT)
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)

    def searched(storage: str, **blocks: Any) -> Any:
        experiment = {
            "trainable": "trainables.digits:train",
            "params": {"epochs": EPOCHS, "lr": 0.1},
            "objective": {"metric": "val_loss", "mode": "min"},
            "search": {"kind": "grid"},
            "scheduler": {"kind": "fifo"},
            "resources": {"cpu": 1, "gpu": 0, "max_concurrent_trials": 1},
            **blocks,
        }
        name = f"run-{time.time_ns()}"
        return run(experiment, storage=storage, name=name, say=lambda text: None)

    def seconds(results: Any) -> float:
        return statistics.median(trial.reports[-1].seconds for trial in results.trials)

    with tempfile.TemporaryDirectory() as storage:
        rates: dict[str, list[float]] = {"in turn": [], "as one": [], "fused": [], "loop": []}
        apart = 0.0
        for number in range(rounds):
            found: dict[str, Any] = {}
            for way in ("in turn", "as one")[:: 1 if number % 2 == 0 else -1]:
                if way == "in turn":
                    found[way] = searched(storage, search_space={"seed": {"grid_search": list(range(COUNT))}})
                else:
                    space = {"dropout": {"grid_search": [0.1, 0.11, 0.12, 0.13, 0.14]}}
                    found[way] = searched(storage, search_space=space, repeat=repeated())
                rates[way].append((1 if way == "in turn" else COUNT) / seconds(found[way]))
            fused = {"cpu": 1, "gpu": 0, "max_concurrent_trials": COUNT, "fused": COUNT}
            space = {"seed": {"grid_search": list(range(5 * COUNT))}}
            found["fused"] = searched(storage, search_space=space, resources=fused)
            ends = sorted(trial.reports[-1].timestamp for trial in found["fused"].trials)
            rates["fused"].append(4 * COUNT / (ends[-1] - ends[COUNT - 1]))
            begun = time.perf_counter()
            looped = loop(storage)
            rates["loop"].append(COUNT / (time.perf_counter() - begun))
            assert looped.count("completed") == COUNT
            one = found["as one"].trials[0]
            for step, report in enumerate(one.reports):
                mean = statistics.fmean(t.reports[step].metrics["val_loss"] for t in found["in turn"].trials)
                apart = max(apart, abs(mean - report.metrics["val_loss"]))
        line("searches, a checkpoint an epoch", rates["in turn"], rates["as one"])
        line("fused, a checkpoint an epoch", rates["in turn"], rates["fused"])
        line("loop, a checkpoint an epoch", rates["in turn"], rates["loop"])
        print(f"\nlargest difference of a mean val_loss: {apart:.1e}", flush=True)


def loop(storage: str) -> Any:
    """A search of the eight in a loop of this process, reports and checkpoints included."""
    import tuner
    from trainables import digits

    def train_many(configs: Sequence[dict[str, Any]], report: Callable[..., bool], starts: Any) -> None:
        digits.train_many([digits.Config(**config) for config in configs], report, starts)

    search = tuner.Search(
        None,
        {"seed": {"grid_search": list(range(COUNT))}},
        params={"epochs": EPOCHS, "lr": 0.1},
        objective=tuner.minimize("val_loss"),
        searcher=tuner.searchers.Grid(),
    )
    with search.begin(name=f"loop-{time.time_ns()}", storage=storage) as begun:
        return tuner.train_fused(begun, train_many, at_once=COUNT)


def repeated() -> dict[str, Any]:
    return {"over": "seed", "times": COUNT, "at_once": True}


def row(name: str, rounds: int, in_turn: Callable[[], None], as_one: Callable[[], None]) -> None:
    rates: dict[Callable[[], None], list[float]] = {in_turn: [], as_one: []}
    for way in (in_turn, as_one):
        way()  # imports and first calls are not measured
    for number in range(rounds):
        for way in (in_turn, as_one)[:: 1 if number % 2 == 0 else -1]:
            begun = time.perf_counter()
            way()
            rates[way].append(COUNT / (time.perf_counter() - begun))
    line(name, rates[in_turn], rates[as_one])


def line(name: str, in_turn: Sequence[float], as_one: Sequence[float]) -> None:
    ratios = [a / b for a, b in zip(as_one, in_turn, strict=True)]
    print(f"| {name} | {spread(in_turn)} | {spread(as_one)} | **{spread(ratios)}** |", flush=True)


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print("| | in turn, trainings a second | as one | ratio |\n|---|---|---|---|", flush=True)
    functions(given.rounds)
    searches(given.rounds)


if __name__ == "__main__":
    main()
