"""What a prior is worth, right or wrong: regret over 1,000 tabulated curves by formula (`tests/tables.py`).

    python tests/benchmarks/priors.py [--seeds 10]

ASHA, 4 workers; the budget is the time in which each completes 10 trials of mean duration. Right: the third best
configuration of the table, wrong: the eleventh worst, both believed with high confidence. Takes half a minute; the
numbers, which are the same on every machine, are in the README.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from tests.tables import EPOCHS, by_formula, space, space_believing  # noqa: E402
from tuner.schedulers.asha.spec import Asha  # noqa: E402
from tuner.schedulers.base import SchedulerSpec  # noqa: E402
from tuner.schedulers.fifo import Fifo  # noqa: E402
from tuner.searchers.base import SearchSpec  # noqa: E402
from tuner.searchers.bohb.searcher import Bohb  # noqa: E402
from tuner.searchers.optuna.spec import Optuna  # noqa: E402
from tuner.searchers.random import Random  # noqa: E402
from tuner.simulator import Table, simulate  # noqa: E402
from tuner.simulator.comparison import normalised_regret  # noqa: E402

ASHA = Asha(time_attr="epoch", max_t=EPOCHS, grace_period=1, reduction_factor=3)
WORKERS, COMPLETE_TRIALS_PER_WORKER = 4, 10


def tables() -> tuple[Table, Table, Table]:
    """The same curves without a prior, with the right one and with the wrong one."""
    curves = by_formula(informative=True, configurations=1000)
    plain = Table.of(curves, space(), "val_accuracy", "epoch")
    order = plain.values[:, -1].argsort()
    right, wrong = (
        Table.of(curves, space_believing(plain.configurations[order[i]]), "val_accuracy", "epoch") for i in (-3, 10)
    )
    return plain, right, wrong


def regrets(
    search: SearchSpec, scheduler: SchedulerSpec, table: Table, seeds: int, shares: Sequence[float]
) -> NDArray[np.float64]:
    """A row a seed: the regret after each of these ``shares`` of the budget."""
    budget = COMPLETE_TRIALS_PER_WORKER * float(table.seconds[:, -1].mean())
    times = [share * budget for share in shares]
    traces = [
        simulate(search, scheduler, table, "max", workers=WORKERS, seed=k, seconds=max(times)) for k in range(seeds)
    ]
    found = [[trace.incumbent_at(time) for time in times] for trace in traces]
    return normalised_regret(table, "max", np.array(found, float))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds

    def shown(search: SearchSpec, scheduler: SchedulerSpec, table: Table) -> str:
        quarter, end = regrets(search, scheduler, table, seeds, (0.25, 1)).mean(axis=0)
        return f"{quarter:.2f} / {end:.2f}"

    plain, right, wrong = tables()
    print("| search | without a prior | right | wrong |\n|---|---|---|---|")
    for name, search in (("random", Random()), ("bohb", Bohb()), ("optuna tpe", Optuna())):
        print(f"| {name} | {' | '.join(shown(search, ASHA, table) for table in (plain, right, wrong))} |")
    print(f"random, nothing stopped, without a prior: {shown(Random(), Fifo(), plain)}")


if __name__ == "__main__":
    main()
