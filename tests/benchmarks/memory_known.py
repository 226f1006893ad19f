"""How many trials run out of memory, with the model of their peaks and without.

    python tests/benchmarks/memory_known.py [--searches 40] [--trials 100]
    python tests/benchmarks/memory_known.py --record [--configurations 120]

``--record`` trains `trainables.small_resnet` on the CPU for two steps, for random configurations, with the batch whole,
in halves, in quarters and so on. It writes by how much the process grew at most (the kernel's own count) to
memory_peaks.json. A search is then simulated: configurations come one after the other, in a new order for each search,
on a device that holds a given share of the largest peak. One that runs out of memory starts again with half its
micro-batch. Counted are trials that ran out of memory at least once, and the mean share of its batch with which a trial
ran, against the largest share that fits.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import random
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
RECORDED = Path(__file__).with_name("memory_peaks.json")
SHARES = (0.5, 0.25, 0.1)
"""Of the largest peak, what a device holds; configurations that do not fit there with one example are left out."""


def record(count: int) -> None:
    """Writes the peaks in GiB by configuration and micro-batch."""
    import torch

    from trainables.small_resnet import SmallResNet
    from tuner.execution.host_memory import own_memory, reset_peak

    rng = random.Random(0)
    torch.set_num_threads(1)
    rows = []
    for number in range(count):
        config = {
            "width": round(math.exp(rng.uniform(math.log(8), math.log(48)))),
            "side": rng.choice([16, 24, 32]),
            "batch_size": round(math.exp(rng.uniform(math.log(16), math.log(160)))),
            "optimizer": rng.choice(["sgd", "adam"]),
            "lr": math.exp(rng.uniform(math.log(1e-4), math.log(1e-1))),
        }
        peaks = {}
        micro_batch = int(config["batch_size"])
        while micro_batch >= 1:
            model = SmallResNet(10, config["width"])
            kind = torch.optim.SGD if config["optimizer"] == "sgd" else torch.optim.Adam
            optimizer = kind(model.parameters(), config["lr"])
            gc.collect()
            ctypes.CDLL("libc.so.6").malloc_trim(0)
            before = own_memory().resident
            reset_peak()
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.randn(micro_batch, 3, config["side"], config["side"])).square().mean().backward()
                optimizer.step()
            peaks[micro_batch] = (own_memory().peak - before) / 2**30
            del model, optimizer
            micro_batch //= 2
        rows.append({"config": config, "peaks": peaks})
        print(number, config, {m: round(p, 3) for m, p in peaks.items()}, flush=True)
    RECORDED.write_text(json.dumps(rows))


def search(rows: list[dict], capacity: float, known: bool, with_model: bool) -> tuple[float, float, float]:
    """Shares of trials that ran out of memory, in all and after the first 20, and the micro-batch against the best."""
    from tuner.search.memory_model import Attempt, fitting_micro_batch

    attempts: list[Attempt] = []
    ran_out, ratios = [], []
    for row in rows:
        config, peaks = row["config"], {int(m): p for m, p in row["peaks"].items()}
        micro_batch = full = config["batch_size"]
        if with_model:
            micro_batch = fitting_micro_batch(attempts, config, full, capacity if known else None)
        failed = False
        while peaks[micro_batch] > capacity:
            failed = True
            attempts.append(Attempt(config, micro_batch, None))
            micro_batch //= 2
        attempts.append(Attempt(config, micro_batch, peaks[micro_batch]))
        ran_out.append(failed)
        ratios.append(micro_batch / max(m for m, p in peaks.items() if p <= capacity))
    return statistics.mean(ran_out), statistics.mean(ran_out[20:]), statistics.mean(ratios)


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--configurations", type=int, default=120)
    parser.add_argument("--searches", type=int, default=40)
    parser.add_argument("--trials", type=int, default=100)
    given = parser.parse_args()
    if given.record:
        record(given.configurations)
        return
    rows = json.loads(RECORDED.read_text())
    largest = max(max(row["peaks"].values()) for row in rows)
    print("| device, of the largest peak | way | trials that ran out of memory | after the first 20 | micro-batch |")
    print("|---|---|---|---|---|")
    for share in SHARES:
        capacity = share * largest
        for name, known, with_model in (
            ("halved at each failure", False, False),
            ("model", False, True),
            ("model, capacity known", True, True),
        ):
            found = []
            for seed in range(given.searches):
                fitting = [row for row in rows if row["peaks"]["1"] <= capacity]
                chosen = random.Random(seed).sample(fitting, min(given.trials, len(fitting)))
                found.append(search(chosen, capacity, known, with_model))
            columns = [spread(list(column)) for column in zip(*found, strict=True)]
            print(f"| {share:.0%} | {name} |", " | ".join(columns), "|", flush=True)


if __name__ == "__main__":
    main()
