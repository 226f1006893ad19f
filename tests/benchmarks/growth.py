"""What one suggestion and one decision cost as a search grows: from 100 to 10,000 trials.

    python tests/benchmarks/growth.py [--trials 10000] [--methods PATTERN …] [-o DIR]

Each searcher with ASHA, stopping and promotion, and each scheduler with random search, 8 workers, on a table of
learning curves by formula (2,000 configurations, 27 epochs, 4 parameters of which one is conditional), in the
simulator. What a searcher does for one trial: it suggests it, and takes note of every report and of the end. What a
scheduler does for one trial: all its decisions about it. Both are processor time, so that other programs disturb
little. The number for n trials is the mean over the tenth of the trials that precede the n-th; in brackets what 99 % of
those stay below.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy

import argparse
import fnmatch
import functools
import math
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import TypeAdapter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.tables import EPOCHS, by_formula, space  # noqa: E402
from tuner.schedulers import AnyScheduler  # noqa: E402
from tuner.schedulers.base import Decision, Exploit, Scheduler, SchedulerSpec  # noqa: E402
from tuner.searchers import AnySearch  # noqa: E402
from tuner.searchers.base import Searcher, SearchSpec  # noqa: E402
from tuner.searchers.build import build_searcher  # noqa: E402
from tuner.simulator import Table, simulate  # noqa: E402
from tuner.spec.problem import SearchProblem  # noqa: E402

SIZES = [100, 200, 500, 1000, 2000, 5000, 10_000]
"""Trials before which costs are reported."""

LIMITS = {"optuna gp": 1000}
"""Trials at most: its cap on the history, 150, is reached long before, and 10,000 would take half an hour."""

WORKERS = 8

RANDOM = {"kind": "random"}
RUNGS = {"time_attr": "epoch", "max_t": EPOCHS, "reduction_factor": 3}
ASHA = {"kind": "asha", "grace_period": 1, **RUNGS}

SEARCHERS: dict[str, dict[str, Any]] = {
    "random": RANDOM,
    "bohb": {"kind": "bohb"},
    "optuna tpe": {"kind": "optuna", "sampler": "tpe"},
    "optuna gp": {"kind": "optuna", "sampler": "gp"},
    "optuna cmaes": {"kind": "optuna", "sampler": "cmaes"},
    "optuna qmc": {"kind": "optuna", "sampler": "qmc"},
    "optuna nsga2": {"kind": "optuna", "sampler": "nsga2"},
    "hyperopt": {"kind": "hyperopt"},
    "gp": {"kind": "gp"},
}
SCHEDULERS: dict[str, dict[str, Any]] = {
    "asha stopping": ASHA,
    "asha promotion": {**ASHA, "variant": "promotion"},
    "asha stopping auto": {**ASHA, "grace_period": "auto"},
    "asha promotion auto": {**ASHA, "variant": "promotion", "grace_period": "auto"},
    "hyperband": {"kind": "hyperband", **RUNGS},
    "bohb": {"kind": "bohb", **RUNGS},
    "median": {"kind": "median", "time_attr": "epoch", "max_t": EPOCHS},
    "asha stopping, 2 objectives": ASHA,
    "asha promotion, 2 objectives": {**ASHA, "variant": "promotion"},
}


class Costs:
    """Adds up the processor time that an object takes for each trial."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def of(self, inner: Any, names: tuple[str, ...]) -> Any:
        """``inner``, whose methods ``names`` are timed; their first argument is the trial."""

        def timed(method: Callable[..., Any], trial_id: Any, *rest: Any) -> Any:
            begun = time.process_time_ns()
            answer = method(trial_id, *rest)
            spent = (time.process_time_ns() - begun) / 1e9
            known = trial_id if isinstance(trial_id, str) else next(reversed(self.seconds), "00001")
            self.seconds[known] = self.seconds.get(known, 0.0) + spent
            return answer

        for name in names:
            setattr(inner, name, functools.partial(timed, getattr(inner, name)))
        return inner


class TimedSearch(SearchSpec):
    """Builds the searcher of ``inner``, timed."""

    inner: AnySearch
    costs: ClassVar[Costs]

    def build(self, task: SearchProblem) -> Searcher:
        built: Searcher = type(self).costs.of(build_searcher(self.inner, task), ("suggest", "on_report", "on_end"))
        return built


class TimedScheduler(SchedulerSpec):
    """Builds the scheduler of ``inner``, timed; what it decides between trials counts for the latest."""

    inner: AnyScheduler
    objectives: int = 1
    """The curves have one. The others are random numbers, so that fronts are as large as they can be."""
    costs: ClassVar[Costs]

    @property
    def fidelity(self) -> tuple[str, int] | None:
        return self.inner.fidelity

    @property
    def pauses(self) -> bool:
        return self.inner.pauses

    def build(self, task: SearchProblem) -> Scheduler:
        inner = self.inner.build(replace(task, modes=task.modes * self.objectives))
        if self.objectives > 1:
            inner = WithOthers(inner, self.objectives - 1)
        built: Scheduler = type(self).costs.of(inner, ("add", "report", "remove", "next_action"))
        return built


class WithOthers(Scheduler):
    """Tells ``inner`` of ``others`` more objectives than it hears of."""

    def __init__(self, inner: Scheduler, others: int) -> None:
        self._inner, self._others, self._rng = inner, others, np.random.default_rng(0)
        self.add, self.remove, self.next_action = inner.add, inner.remove, inner.next_action  # type: ignore[method-assign]

    def report(self, trial_id: str, step: int, value: float) -> Decision | Exploit:
        return self._inner.report_all(trial_id, step, (value, *self._rng.random(self._others).tolist()))


def measured(
    search: dict[str, Any], scheduler: dict[str, Any], table: Table, trials: int, objectives: int
) -> tuple[Costs, Costs]:
    """The costs of the searcher and of the scheduler, by trial."""
    TimedSearch.costs, TimedScheduler.costs = Costs(), Costs()
    searching = TimedSearch(inner=TypeAdapter(AnySearch).validate_python(search))
    inner = TypeAdapter(AnyScheduler).validate_python(scheduler)
    scheduling = TimedScheduler(inner=inner, objectives=objectives)
    simulate(searching, scheduling, table, "max", workers=WORKERS, trials=trials)
    return TimedSearch.costs, TimedScheduler.costs


def windows(costs: Costs, trials: int) -> dict[int, tuple[float, float]]:
    """Before each size: the mean of what a trial cost and its 99 % quantile, in seconds."""
    spent = np.array(list(costs.seconds.values()))
    last = {size: spent[size - size // 10 : size] for size in SIZES if size <= trials}
    return {size: (float(costs.mean()), float(np.quantile(costs, 0.99))) for size, costs in last.items()}


def line(name: str, found: dict[int, tuple[float, float]]) -> str:
    """A row of the table, in milliseconds."""
    return f"| {name} | {' | '.join(f'{mean * 1e3:.2g} ({most * 1e3:.2g})' for mean, most in found.values())} |"


def figure(panels: dict[str, dict[str, dict[int, tuple[float, float]]]], path: Path) -> None:
    """Milliseconds against trials, both logarithmic, a panel for each group of methods."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    colours = ["#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#999999", "#882255"]
    size = 5.5 * len(panels), 5.2
    drawn, axes = pyplot.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)
    for axis, (title, rows) in zip(axes[0], panels.items(), strict=True):
        decades = []
        for (name, found), colour, marker in zip(rows.items(), colours, "osD^vP*X<", strict=False):
            times = [mean * 1e3 for mean, _ in found.values()]
            axis.loglog(list(found), times, marker=marker, color=colour, label=name, linewidth=1.5, markersize=5)
            decades += [math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))]
        axis.set(title=title, xlabel="trials in the search", ylabel="processor time per trial (ms)")
        axis.set_ylim(10.0 ** min(decades), 10.0 ** max(decades))
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_major_formatter("{x:,g}")
            scale.set_minor_formatter("")
        axis.grid(which="major", alpha=0.3)
        axis.legend(fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)
    drawn.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=SIZES[-1])
    parser.add_argument("--methods", nargs="+", default=["*"], help="patterns of names (default: all)")
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="folder of growth.png")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "formula.parquet"
        by_formula(informative=True, configurations=2000).to_parquet(file)
        table = Table.read(file, space(), "val_accuracy", "epoch")
    promotion = SCHEDULERS["asha promotion"]
    groups = {
        "searchers": {name: (search, ASHA) for name, search in SEARCHERS.items()},
        "searchers, promotion": {name: (search, promotion) for name, search in SEARCHERS.items()},
        "schedulers": {name: (RANDOM, scheduler) for name, scheduler in SCHEDULERS.items()},
    }
    panels: dict[str, dict[str, dict[int, tuple[float, float]]]] = {}
    print(f"| ms a trial before | {' | '.join(f'{size:,}' for size in SIZES if size <= arguments.trials)} |")
    for panel, methods in groups.items():
        panels[panel] = {}
        for name, (search, scheduler) in methods.items():
            if not any(fnmatch.fnmatch(name, pattern) for pattern in arguments.methods):
                continue
            trials = min(arguments.trials, LIMITS.get(name, arguments.trials))
            objectives = 2 if name.endswith("2 objectives") else 1
            costs = measured(search, scheduler, table, trials, objectives)[panel == "schedulers"]
            panels[panel][name] = windows(costs, trials)
            print(line(f"{name} ({panel})", panels[panel][name]), flush=True)
    figure({panel: rows for panel, rows in panels.items() if rows}, arguments.output / "growth.png")


if __name__ == "__main__":
    main()
