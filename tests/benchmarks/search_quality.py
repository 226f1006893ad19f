"""How good the searches are, beside those of other libraries: regret against virtual time over tabulated curves.

    python tests/benchmarks/search_quality.py --tables FOLDER [--seeds 20] [--methods PATTERN …] [--cache FILE] [-o DIR]

Needs the packages of ``pip install -e .[benchmarks]``. Each table is a parquet file as `tuner.simulator.table`
describes it, over the space ``search_spaces/lcbench.yaml``. All methods run in the same simulator on 8 workers; the
time in which a method thinks is not counted. What the peers achieved on the 12 tables of LCBench that the README tells
of is in ``peers.jsonl``, so that only our own methods (an hour of one core) and what that lacks run there.
Definitions:

- incumbent: the best value reported so far, at any fidelity;
- normalised regret: (best - incumbent) / (best - median), with the best value in the table and the median over its
  configurations of the value at the last fidelity (`tuner.simulator.comparison`); 1 before the first report;
- budget: the virtual time in which every worker could run 10 configurations of mean duration to their end (80
  complete trials on 8 workers): the same for all methods, whatever they stop;
- time to random's end: the share of the budget after which the mean regret is down to what random search without
  early stopping ends with; geometric mean over the tables; 1 where that does not happen within the budget;
- ± is the standard error over seeds of the mean over tables; ranks are means over tables and seeds, ties shared.

An early rank is informative where Spearman's correlation between fidelity 5 and the last is above 0.6.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: one search is one process

import argparse
import fnmatch
import functools
import hashlib
import json
import multiprocessing
import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter
from scipy.stats import spearmanr

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from peer import REDUCTION_FACTOR, PeerScheduler, PeerSearch  # noqa: E402
from peers import ADAPTERS, PEERS, quiet  # noqa: E402
from quality_report import STEPS, Results, figure, tables_of  # noqa: E402

from tuner.schedulers import AnyScheduler  # noqa: E402
from tuner.schedulers.base import SchedulerSpec  # noqa: E402
from tuner.searchers import AnySearch  # noqa: E402
from tuner.searchers.base import SearchSpec  # noqa: E402
from tuner.simulator import Table, simulate  # noqa: E402
from tuner.simulator.comparison import normalised_regret  # noqa: E402
from tuner.spec.document import read_yaml  # noqa: E402
from tuner.spec.space.reader import read_space  # noqa: E402

METRIC, FIDELITY, MODE = "val_accuracy", "epoch", "max"
SPACE = ROOT / "search_spaces" / "lcbench.yaml"
MEASURED = Path(__file__).with_name("peers.jsonl")
"""Searches of the peers, which take hours; lines of a ``--cache``."""
WORKERS = 8
COMPLETE_TRIALS_PER_WORKER = 10
"""The budget, in mean durations of a complete trial."""

RANDOM, TPE, BOHB = {"kind": "random"}, {"kind": "optuna", "sampler": "tpe"}, {"kind": "bohb"}
FIFO = {"kind": "fifo"}


def rungs(kind: str, **options: Any) -> dict[str, Any]:
    """A scheduler that compares trials; ``max_t`` comes from the table."""
    return {"kind": kind, "time_attr": FIDELITY, **options}


def asha(grace_period: int | str, variant: str = "stopping") -> dict[str, Any]:
    return rungs("asha", grace_period=grace_period, variant=variant, reduction_factor=REDUCTION_FACTOR)


def hyperband(kind: str, grace_period: int) -> dict[str, Any]:
    return rungs(kind, grace_period=grace_period, reduction_factor=REDUCTION_FACTOR)


OURS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "random": (RANDOM, FIFO),
    "random + ASHA, grace 1": (RANDOM, asha(1)),
    "random + ASHA, grace 3": (RANDOM, asha(3)),
    "random + ASHA, grace 5": (RANDOM, asha(5)),
    "random + ASHA, grace auto": (RANDOM, asha("auto")),
    "random + ASHA promotion, grace auto": (RANDOM, asha("auto", "promotion")),
    "random + ASHA promotion, grace 1": (RANDOM, asha(1, "promotion")),
    "random + ASHA promotion, grace 3": (RANDOM, asha(3, "promotion")),
    "random + ASHA promotion, grace 5": (RANDOM, asha(5, "promotion")),
    "random + HyperBand, grace 1": (RANDOM, hyperband("hyperband", 1)),
    "random + HyperBand, grace 3": (RANDOM, hyperband("hyperband", 3)),
    "random + median": (RANDOM, rungs("median")),
    "TPE": (TPE, FIFO),
    "TPE + ASHA, grace 3": (TPE, asha(3)),
    "TPE + ASHA, grace 5": (TPE, asha(5)),
    "TPE + ASHA, grace auto": (TPE, asha("auto")),
    "TPE + ASHA promotion, grace 3": (TPE, asha(3, "promotion")),
    "TPE + ASHA promotion, grace auto": (TPE, asha("auto", "promotion")),
    "TPE + median": (TPE, rungs("median")),
    "BOHB, grace 1": (BOHB, hyperband("bohb", 1)),
    "BOHB, grace 3": (BOHB, hyperband("bohb", 3)),
    "BOHB + ASHA, grace 3": (BOHB, asha(3)),
    "BOHB + ASHA, grace 5": (BOHB, asha(5)),
    "BOHB + ASHA, grace auto": (BOHB, asha("auto")),
    "BOHB + ASHA promotion, grace 3": (BOHB, asha(3, "promotion")),
    "BOHB + ASHA promotion, grace auto": (BOHB, asha("auto", "promotion")),
}
"""By name: search and scheduler, as an experiment file has them."""


@dataclass(frozen=True)
class Cell:
    """One search to run."""

    method: str
    version: str
    """Changes with the code of the method."""
    table: str
    """Name and checksum of its file."""
    seed: int


def specs(method: str, table: Table, seed: int) -> tuple[SearchSpec, SchedulerSpec]:
    """What `simulate` needs of a method."""
    max_t = table.fidelities[-1]
    if method in PEERS:
        peer = PEERS[method](table.space, max_t, seed)
        return PeerSearch(peer=peer), PeerScheduler(peer=peer)
    search, scheduler = OURS[method]
    if scheduler is not FIFO:
        scheduler = {**scheduler, "max_t": max_t}
    return TypeAdapter(AnySearch).validate_python(search), TypeAdapter(AnyScheduler).validate_python(scheduler)


def named(file: Path) -> str:
    """A table, as the caches name it."""
    return f"{file.stem} {zlib.crc32(file.read_bytes()):08x}"


@functools.cache
def read(path: Path) -> Table:
    problems: list[Any] = []
    space = read_space(read_yaml(SPACE.read_text(), str(SPACE)), (), problems)
    assert space is not None, problems
    return Table.read(str(path), space, METRIC, FIDELITY)


def budget(table: Table) -> float:
    """Virtual seconds."""
    return float(COMPLETE_TRIALS_PER_WORKER * table.seconds[:, -1].mean())


def run(cell: Cell, path: Path) -> dict[str, Any]:
    """One search: after how many of the `STEPS` of the budget the regret was down to which value."""
    quiet()
    table = read(path)
    seed = zlib.crc32(f"{table.name} {cell.seed}".encode())  # the same for all methods, another for each table
    search, scheduler = specs(cell.method, table, seed)
    trace = simulate(search, scheduler, table, MODE, workers=WORKERS, seed=seed, seconds=budget(table))
    steps = np.ceil((trace.times / budget(table)).round(6) * STEPS)
    last = np.flatnonzero(np.diff(steps, append=np.inf))  # of those within one step
    return {
        "steps": steps[last].astype(int).tolist(),
        "regrets": normalised_regret(table, MODE, trace.incumbents)[last].round(6).tolist(),
        "trials": trace.trials,
        "reports": trace.reports,
        "wall_s": round(trace.wall_s, 2),
    }


def version(method: str, table: Table) -> str:
    """A hash of a method's settings, and of its code: for ours the files, for a peer the versions of the libraries.

    The simulator is not part of it: delete the cache when that changes.
    """
    if method in PEERS:
        from importlib.metadata import version as installed

        files = []
        text = f"{PEERS[method]} {ADAPTERS} {installed('syne-tune')} {installed('optuna')}"
    else:
        search, scheduler = specs(method, table, 0)
        files = sorted({*sources(type(search).__module__), *sources(type(scheduler).__module__)})
        text = repr(OURS[method])
    text += "".join(file.read_text() for file in files)
    text += repr([(parameter.name, parameter.domain.to_yaml()) for parameter in table.space.parameters])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@functools.cache
def sources(module: str) -> tuple[Path, ...]:
    """The files of ``module`` and of what it imports from the searchers and the schedulers."""
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = ROOT / (name.replace(".", "/") + ".py")
        if name in found or not file.is_file():
            continue
        found[name] = file
        waiting += re.findall(r"from (tuner\.(?:searchers|schedulers)\.\w+) import", file.read_text())
    return tuple(found[name] for name in sorted(found))


def finished(cache: Path) -> dict[Cell, dict[str, Any]]:
    """What earlier runs left in ``cache``: one JSON object a line."""
    lines = (json.loads(line) for line in cache.read_text().splitlines()) if cache.exists() else ()
    return {Cell(**line["cell"]): line["outcome"] for line in lines}


def outcomes(cells: dict[Cell, Path], cache: Path | None, processes: int) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Runs what is neither in ``cache`` nor in ``peers.jsonl``, and adds it to ``cache`` at once."""
    known = finished(MEASURED) | (finished(cache) if cache else {})
    yield from ((cell, known[cell]) for cell in cells if cell in known)
    missing = [(cell, path) for cell, path in cells.items() if cell not in known]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for number, (cell, outcome) in enumerate(pool.imap_unordered(_numbered, missing), 1):
            if cache is not None:
                with cache.open("a") as lines:
                    lines.write(json.dumps({"cell": asdict(cell), "outcome": outcome}) + "\n")
            print(f"\r{number} of {len(missing)} searches", end="", file=sys.stderr, flush=True)
            yield cell, outcome


def _numbered(task: tuple[Cell, Path]) -> tuple[Cell, dict[str, Any]]:
    return task[0], run(*task)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, nargs="+", required=True, help="parquet files, or folders of them")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--methods", nargs="+", default=["*"], help="patterns of names (default: all)")
    parser.add_argument("--plot", nargs="+", help="patterns of methods in the figure (default: the best)")
    parser.add_argument("--cache", type=Path, help="file that keeps finished searches, so that only new ones run")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="folder of search_quality.png")
    arguments = parser.parse_args()

    folders = [sorted(path.glob("*.parquet")) if path.is_dir() else [path] for path in arguments.tables]
    files = {named(file): file.resolve() for folder in folders for file in folder}
    methods = [m for m in (*OURS, *PEERS) if any(fnmatch.fnmatch(m, pattern) for pattern in arguments.methods)]
    versions = {method: version(method, read(next(iter(files.values())))) for method in methods}
    cells = {
        Cell(method, versions[method], table, seed): path
        for seed in range(arguments.seeds)
        for method in methods
        for table, path in files.items()
    }
    results = Results(methods, list(files), arguments.seeds)
    for cell, outcome in outcomes(cells, arguments.cache, arguments.processes):
        results.add(cell.method, cell.table, cell.seed, outcome)
    print(tables_of(results, {table: rank_correlations(read(path)) for table, path in files.items()}))
    figure(results, set(OURS), arguments.plot, arguments.output / "search_quality.png")


def rank_correlations(table: Table) -> dict[int, float]:
    """Of each early fidelity: Spearman's correlation with the last over all configurations."""
    early = [step for step in (1, 3, 5, 10) if step in table.fidelities]
    return {
        step: float(spearmanr(table.values[:, table.fidelities.index(step)], table.values[:, -1]).statistic)
        for step in early
    }


if __name__ == "__main__":
    main()
