"""How good the searches are on a surrogate model, which answers every configuration as it was asked.

    python tests/benchmarks/surrogate.py --data FOLDER [--seeds 2] [--methods PATTERN …] [--half first|second]

FOLDER holds ``surrogate.onnx`` (the LCBench surrogate of YAHPO Gym) and ``tasks.json``, the code of each task. Needs
`pip install onnxruntime`. Each search has 8 workers, and the virtual time in which random search without early stopping
completes 60 trials. Regret: (best - incumbent) / (best - median), where best is what a local search from 4,096 draws
finds, and median that of their final values. ± is the standard error over tasks. The last column is the difference in
regret at 100 % to the first method, paired by task, with a 95 % bootstrap interval over tasks: below 0 is better.

Choices were made on the first half of the tasks (every second one), and looked at on the second half.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: one search is one process

import argparse
import fnmatch
import functools
import json
import multiprocessing
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tuner.schedulers import AnyScheduler  # noqa: E402
from tuner.searchers import AnySearch  # noqa: E402
from tuner.simulator import CurveFunction, simulate  # noqa: E402
from tuner.simulator.comparison import full_time  # noqa: E402
from tuner.spec.configuration import Configuration  # noqa: E402
from tuner.spec.document import read_yaml  # noqa: E402
from tuner.spec.space.reader import read_space  # noqa: E402

EPOCHS, WORKERS, FULL_TRIALS = 50, 8, 60
SHARES = (0.25, 1.0)
SPACE = ROOT / "search_spaces" / "lcbench.yaml"


def asha(grace_period: int | str, variant: str = "stopping") -> dict[str, Any]:
    options = {"grace_period": grace_period, "variant": variant, "reduction_factor": 3}
    return {"kind": "asha", "time_attr": "epoch", "max_t": EPOCHS, **options}


RANDOM, TPE, BOHB, GP = {"kind": "random"}, {"kind": "optuna", "sampler": "tpe"}, {"kind": "bohb"}, {"kind": "gp"}
OPTUNA_GP, FIFO = {"kind": "optuna", "sampler": "gp"}, {"kind": "fifo"}
METHODS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gp + ASHA promotion, grace 9": (GP, asha(9, "promotion")),
    "gp + ASHA, grace 9": (GP, asha(9)),
    "gp + ASHA, grace 3": (GP, asha(3)),
    "gp": (GP, FIFO),
    "BOHB + ASHA, grace 9": (BOHB, asha(9)),
    "BOHB + ASHA, grace 3": (BOHB, asha(3)),
    "TPE + ASHA, grace 9": (TPE, asha(9)),
    "TPE": (TPE, FIFO),
    "random + ASHA promotion, grace 9": (RANDOM, asha(9, "promotion")),
    "random + ASHA, grace 9": (RANDOM, asha(9)),
    "random + ASHA, grace 3": (RANDOM, asha(3)),
    "random + ASHA, grace auto": (RANDOM, asha("auto")),
    "random": (RANDOM, FIFO),
    "Optuna's GP + ASHA, grace 9": (OPTUNA_GP, asha(9)),
    "Optuna's GP": (OPTUNA_GP, FIFO),
}
"""By name: search and scheduler, as an experiment file has them."""


@dataclass(frozen=True)
class Scale:
    """What a task is measured by."""

    best: float
    median: float
    seconds: float


@functools.cache
def task(data: Path, name: str) -> CurveFunction:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(data / "surrogate.onnx"), options)
    code = json.loads((data / "tasks.json").read_text())[name]
    space = read_space(read_yaml(SPACE.read_text(), str(SPACE)), (), [])
    assert space is not None
    parameters = [parameter.name for parameter in space.parameters]
    steps = np.arange(2, EPOCHS + 2, dtype=np.float32)  # its epoch 1 is before any training

    def curves(configurations: Sequence[Configuration]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rows = np.array([[c[name] for name in parameters] for c in configurations], dtype=np.float32)
        inputs = np.column_stack([np.tile(steps, len(rows)), np.repeat(rows, EPOCHS, axis=0)])
        codes = np.full((len(inputs), 1), code, np.int32)
        (answers,) = session.run(None, {"x_cat": codes, "x_cont": inputs})
        seconds = np.maximum.accumulate(np.maximum(answers[:, 0].reshape(-1, EPOCHS), 1e-3), axis=1)
        return answers[:, 1].reshape(-1, EPOCHS).astype(np.float64) / 100, seconds.astype(np.float64)

    return CurveFunction(name, space, tuple(range(1, EPOCHS + 1)), curves)


def scale(data: Path, name: str) -> Scale:
    found = task(data, name)
    median = float(np.median(found.sample[0][:, -1]))
    return Scale(found.best("max"), median, full_time(found, FULL_TRIALS, WORKERS))


def run(data: Path, method: str, name: str, seed: int, measured: Scale) -> list[float]:
    """Regret at `SHARES`, trials, and milliseconds a trial."""
    search, scheduler = METHODS[method]
    trace = simulate(
        TypeAdapter(AnySearch).validate_python(search),
        TypeAdapter(AnyScheduler).validate_python(scheduler),
        task(data, name),
        "max",
        workers=WORKERS,
        seed=zlib.crc32(f"{name} {seed}".encode()),
        seconds=measured.seconds,
    )
    incumbents = [trace.incumbent_at(share * measured.seconds) for share in SHARES]
    top = [measured.median if incumbent is None else incumbent for incumbent in incumbents]
    regrets = [(measured.best - value) / (measured.best - measured.median) for value in top]
    return [*regrets, trace.trials, 1000 * trace.wall_s / trace.trials]


def interval(differences: NDArray[np.float64]) -> str:
    """Mean and 95 % bootstrap interval."""
    draws = np.random.default_rng(0).choice(differences, (10_000, len(differences))).mean(axis=1)
    low, high = np.quantile(draws, (0.025, 0.975))
    return f"{differences.mean():+.3f} ({low:+.3f} to {high:+.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--methods", nargs="+", default=["*"], help="patterns of names (default: all)")
    parser.add_argument("--half", choices=("first", "second"), help="of the tasks (default: all)")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    names = list(json.loads((options.data / "tasks.json").read_text()))
    names = {"first": names[::2], "second": names[1::2], None: names}[options.half]
    methods = [name for name in METHODS if any(fnmatch.fnmatch(name, pattern) for pattern in options.methods)]
    first: NDArray[np.float64] | None = None
    print(
        "| method | regret at 25 % | at 100 % | trials | ms a trial | difference at 100 % |\n|---|---|---|---|---|---|"
    )
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        scales = pool.starmap(scale, [(options.data, name) for name in names], chunksize=1)
        for method in methods:
            jobs = [
                (options.data, method, name, seed, found)
                for name, found in zip(names, scales, strict=True)
                for seed in range(options.seeds)
            ]
            found = np.array(pool.starmap(run, jobs, chunksize=1)).reshape(len(names), options.seeds, -1).mean(axis=1)
            error = found.std(axis=0, ddof=1) / np.sqrt(len(names))
            quarter, whole = (f"{found[:, i].mean():.3f} ± {error[i]:.3f}" for i in range(2))
            first = found[:, 1] if first is None else first
            difference = interval(found[:, 1] - first) if found[:, 1] is not first else ""
            cells = [method, quarter, whole, f"{found[:, 2].mean():.0f}", f"{found[:, 3].mean():.1f}", difference]
            print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
