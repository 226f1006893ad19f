"""How good the searches are on continuous tasks, beside those of other libraries: regret against virtual time.

    python tests/benchmarks/regret.py [--families PATTERN …] [--data FOLDER] [--part development|decision|report]
        [--methods PATTERN …] [--seeds 2] [--workers 8] [--full-trials 60] [--cost 0] [--processes 2] [--keep]

The families are in ``tasks.py``. "lcbench" needs --data, the folder of ``surrogate.onnx`` and ``tasks.json``, and `pip
install onnxruntime`. What the peers did, which takes hours, is in ``regret_peers.jsonl``; ``--keep`` adds what that
lacks, which needs `pip install -e '.[benchmarks]'`, and for SMAC and DEHB what ``peers.py`` says.

A search may use the virtual time in which random search without early stopping completes ``--full-trials`` trials.
Suggestions take no virtual time. With ``--cost``, each start of a trial and each resume takes so many mean epochs.

Regret: (best - incumbent) / (best - median), in values without noise and rounding. The incumbent is the report that
looked best, best is what a local search from 4,096 draws finds, and median that of their final values. ± is the
standard error over tasks. The last column is the difference in regret at 100 % to the first method, paired by task,
with a 95 % bootstrap interval over tasks: below 0 is better. The rank is among the methods, at 100 %, in the mean of
tasks and seeds.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: one search is one process

import argparse
import fnmatch
import functools
import json
import math
import multiprocessing
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from scipy.stats import rankdata

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from peer import PeerOptions, PeerScheduler, PeerSearch  # noqa: E402
from peer_dehb import DehbPair  # noqa: E402
from peer_optuna import OptunaPair  # noqa: E402
from peer_smac import SmacFacade  # noqa: E402
from peer_syne_tune import SyneTuneBaseline  # noqa: E402
from peer_tries import TRIES  # noqa: E402
from peers import quiet  # noqa: E402
from tasks import EPOCHS, FORMULAS, LCBENCH, MEASURED, Task, names, task  # noqa: E402

from tuner.schedulers import AnyScheduler  # noqa: E402
from tuner.schedulers.base import SchedulerSpec  # noqa: E402
from tuner.searchers import AnySearch  # noqa: E402
from tuner.searchers.base import SearchSpec  # noqa: E402
from tuner.simulator import Costs, CurveFunction, Trace, simulate  # noqa: E402
from tuner.simulator.comparison import full_time  # noqa: E402
from tuner.spec.configuration import Configuration  # noqa: E402

SHARES = (0.25, 1.0)
RESULTS = Path(__file__).with_name("regret_peers.jsonl")
"""A search of a peer a line: what it was, and what `run` returned."""


ASHA: dict[str, Any] = {"kind": "asha", "time_attr": "epoch", "max_t": EPOCHS}
"""With its defaults: ``grace_period: auto`` and a reduction factor of 4."""
RAYS = ASHA | {"grace_period": 1}
"""With those of Ray Tune."""


def asha(grace_period: int, variant: str = "stopping") -> dict[str, Any]:
    return ASHA | {"grace_period": grace_period, "variant": variant, "reduction_factor": 3}


RANDOM, TPE, BOHB, GP = {"kind": "random"}, {"kind": "optuna", "sampler": "tpe"}, {"kind": "bohb"}, {"kind": "gp"}
OPTUNA_GP, FIFO = {"kind": "optuna", "sampler": "gp"}, {"kind": "fifo"}
METHODS: dict[str, tuple[dict[str, Any], dict[str, Any]] | PeerOptions] = {
    "gp + ASHA": (GP, ASHA),
    "gp + ASHA promotion": (GP, ASHA | {"variant": "promotion"}),
    "gp + ASHA with Ray's defaults": (GP, RAYS),
    "gp + ASHA promotion, grace 9": (GP, asha(9, "promotion")),
    "gp + ASHA, grace 9": (GP, asha(9)),
    "gp + ASHA, grace 3": (GP, asha(3)),
    "gp + ASHA, grace 1": (GP, asha(1)),
    "gp": (GP, FIFO),
    "BOHB + ASHA": (BOHB, ASHA),
    "BOHB + ASHA, grace 9": (BOHB, asha(9)),
    "BOHB + ASHA, grace 3": (BOHB, asha(3)),
    "TPE + ASHA": (TPE, ASHA),
    "TPE + ASHA, grace 9": (TPE, asha(9)),
    "TPE": (TPE, FIFO),
    "random + ASHA": (RANDOM, ASHA),
    "random + ASHA with Ray's defaults": (RANDOM, RAYS),
    "random + ASHA promotion, grace 9": (RANDOM, asha(9, "promotion")),
    "random + ASHA, grace 9": (RANDOM, asha(9)),
    "random + ASHA, grace 3": (RANDOM, asha(3)),
    "random": (RANDOM, FIFO),
    "Optuna's GP + ASHA, grace 9": (OPTUNA_GP, asha(9)),
    "Optuna's GP": (OPTUNA_GP, FIFO),
    "Syne Tune CQR": SyneTuneBaseline("CQR"),
    "Syne Tune ASHA + CQR, grace 3": SyneTuneBaseline("ASHACQR", 3),
    "Syne Tune ASHA + CQR, grace 9": SyneTuneBaseline("ASHACQR", 9),
    "Syne Tune BOHB in the unit cube, grace 3": SyneTuneBaseline("BOHB", 3, unit=True),
    "Optuna TPE + Hyperband, min 3": OptunaPair(3),
    "Optuna TPE + SuccessiveHalving, min 3": OptunaPair(3, pruner="halving"),
    "Optuna GP + Hyperband, min 3": OptunaPair(3, "gp"),
    "Optuna GP + SuccessiveHalving, min 3": OptunaPair(3, "gp", "halving"),
    "SMAC, n_trials 20": SmacFacade(20),
    "SMAC, n_trials 80": SmacFacade(80),
    "SMAC + Hyperband, min 3, n_trials 60": SmacFacade(60, 3),
    "SMAC + Hyperband, min 3, n_trials 240": SmacFacade(240, 3),
    "DEHB, min 3": DehbPair(3),
}
"""By name: search and scheduler, as an experiment file has them, or a peer."""


@dataclass(frozen=True)
class Setting:
    """Of a whole comparison."""

    data: Path | None
    workers: int
    full_trials: int
    cost: float = 0.0
    """Of a start and of a resume, in mean epochs."""


@dataclass(frozen=True)
class Scale:
    """What a task is measured by."""

    best: float
    median: float
    seconds: float
    """Of a search."""
    epoch: float
    """Seconds of one, in the mean of configurations."""


Job = tuple[Setting, str, str, int, Scale]
"""The arguments of `run`."""


@functools.cache
def scale(setting: Setting, name: str) -> Scale:
    measured = task(name, setting.data)
    values, seconds = measured.true.sample
    return Scale(
        best=measured.true.best("max"),
        median=float(np.median(values[:, -1])),
        seconds=full_time(measured.seen, setting.full_trials, setting.workers),
        epoch=float(seconds[:, -1].mean()) / measured.epochs,
    )


def specs(method: str, measured: Task, seed: int) -> tuple[SearchSpec, SchedulerSpec]:
    """What `simulate` needs of a method."""
    found = METHODS.get(method) or TRIES[method]
    if not isinstance(found, tuple):
        quiet()
        for option in ("grace_period", "min_resource"):
            if getattr(found, option, None) is not None:
                found = replace(found, **{option: of_epochs(getattr(found, option), measured)})
        peer = found(measured.seen.space, measured.epochs, seed)
        return PeerSearch(peer=peer), PeerScheduler(peer=peer)
    search, scheduler = found
    if scheduler["kind"] != "fifo":
        scheduler = scheduler | {"max_t": measured.epochs}
    if isinstance(scheduler.get("grace_period"), int):
        scheduler["grace_period"] = of_epochs(scheduler["grace_period"], measured)
    return TypeAdapter(AnySearch).validate_python(search), TypeAdapter(AnyScheduler).validate_python(scheduler)


def of_epochs(first_rung: int, measured: Task) -> int:
    """The same share of the task's epochs as ``first_rung`` is of `EPOCHS`."""
    return math.ceil(first_rung * measured.epochs / EPOCHS)


def key(job: Job) -> tuple[str, str, int, int, int]:
    """Of a search of a peer, in `RESULTS`."""
    setting, method, name, seed, _ = job
    return method, name, seed, setting.workers, setting.full_trials


def results(pool: Pool, jobs: Sequence[Job], keep: bool) -> list[list[float]]:
    """What `run` returns for each of ``jobs``; those of peers are read, and with ``keep`` written."""
    lines = map(json.loads, RESULTS.read_text().splitlines() if RESULTS.exists() else ())
    known = {tuple(line["search"]): line["result"] for line in lines}
    missing = [job for job in jobs if key(job) not in known]
    found = dict(zip(map(key, missing), pool.starmap(run, missing, chunksize=1), strict=True))
    if keep:
        with RESULTS.open("a") as file:
            for job in missing:
                if not isinstance(METHODS.get(job[1]), tuple):
                    rounded = [round(value, 4) for value in found[key(job)]]
                    file.write(json.dumps({"search": key(job), "result": rounded}) + "\n")
    return [found.get(key(job)) or known[key(job)] for job in jobs]


def run(setting: Setting, method: str, name: str, seed: int, measured: Scale) -> list[float]:
    """Regret at `SHARES`, trials, and milliseconds a trial."""
    seen = task(name, setting.data).seen
    asked: list[Configuration] = []

    def noting(configurations: Sequence[Configuration]) -> Any:
        asked.extend(configurations)
        return seen.function(configurations)

    drawn = zlib.crc32(f"{name} {seed}".encode())
    trace = simulate(
        *specs(method, task(name, setting.data), drawn),
        CurveFunction(name, seen.space, seen.fidelities, noting),
        "max",
        workers=setting.workers,
        seed=drawn,
        seconds=measured.seconds,
        costs=Costs(setting.cost * measured.epoch, setting.cost * measured.epoch),
    )
    values = incumbents(trace, task(name, setting.data).true, asked, [share * measured.seconds for share in SHARES])
    top = [measured.median if value is None else value for value in values]
    regrets = [(measured.best - value) / (measured.best - measured.median) for value in top]
    return [*regrets, trace.trials, 1000 * trace.wall_s / trace.trials]


def incumbents(
    trace: Trace, true: CurveFunction, asked: Sequence[Configuration], seconds: Sequence[float]
) -> list[float | None]:
    """What the report that looked best by each of ``seconds`` is worth; ``asked``: of the trials, in their order."""
    best: tuple[float, str, int] | None = None
    found: list[float | None] = []
    events = iter(trace.decisions)
    event = next(events, None)
    for limit in seconds:
        while event is not None and event.time <= limit:
            if event.value is not None and (best is None or event.value > best[0]):
                best = event.value, event.trial, event.step
            event = next(events, None)
        if best is None:
            found.append(None)
        else:
            values, _ = true.learning_curve(asked[int(best[1]) - 1])
            found.append(float(values[true.fidelities.index(best[2])]))
    return found


def interval(differences: NDArray[np.float64]) -> str:
    """Mean and 95 % bootstrap interval."""
    draws = np.random.default_rng(0).choice(differences, (10_000, len(differences))).mean(axis=1)
    low, high = np.quantile(draws, (0.025, 0.975))
    return f"{differences.mean():+.3f} ({low:+.3f} to {high:+.3f})"


def table(methods: Sequence[str], found: NDArray[np.float64]) -> str:
    """Markdown; ``found``: by method, task, seed, and what `run` returns."""
    lines = [
        "| method | regret at 25 % | at 100 % | rank | trials | ms a trial | difference at 100 % |",
        "|---|---|---|---|---|---|---|",
    ]
    ranks = rankdata(found[..., 1], axis=0).mean(axis=(1, 2))
    means = found.mean(axis=2)
    for k, method in enumerate(methods):
        error = means[k].std(axis=0, ddof=1) / np.sqrt(means.shape[1])
        quarter, whole = (f"{means[k, :, i].mean():.3f} ± {error[i]:.3f}" for i in range(2))
        difference = interval(means[k, :, 1] - means[0, :, 1]) if k else ""
        trials, cost = means[k, :, 2].mean(), means[k, :, 3].mean()
        cells = [method, quarter, whole, f"{ranks[k]:.1f}", f"{trials:.0f}", f"{cost:.1f}", difference]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", default=["*"], help="patterns of names (default: all)")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--part", choices=("development", "decision", "report"), default="development")
    parser.add_argument("--methods", nargs="+", help="patterns of names, of tries too (default: all but tries)")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--full-trials", type=int, default=60)
    parser.add_argument("--cost", type=float, default=0.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()

    def matching(all_names: Sequence[str], patterns: Sequence[str]) -> list[str]:
        return [name for name in all_names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]

    setting = Setting(options.data, options.workers, options.full_trials, options.cost)
    families = matching((LCBENCH, *FORMULAS) if options.data else (*FORMULAS, MEASURED), options.families)
    methods = matching([*METHODS, *TRIES], options.methods) if options.methods else list(METHODS)
    if options.cost and not all(isinstance(METHODS.get(method), tuple) for method in methods):
        parser.error("--cost: what is kept of the peers is without it; choose --methods without them")
    everything = []
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for family in families:
            tasks = names(family, options.part, options.data)
            if not tasks:
                continue
            scales = pool.starmap(scale, [(setting, name) for name in tasks], chunksize=1)
            jobs: list[Job] = [
                (setting, method, name, seed, measured)
                for method in methods
                for name, measured in zip(tasks, scales, strict=True)
                for seed in range(options.seeds)
            ]
            found = np.array(results(pool, jobs, options.keep))
            found = found.reshape(len(methods), len(tasks), options.seeds, -1)
            everything.append(found)
            print(f"\n{family}\n\n{table(methods, found)}", flush=True)
    if len(families) > 1:
        print(f"\nall families\n\n{table(methods, np.concatenate(everything, axis=1))}")


if __name__ == "__main__":
    main()
