"""Several searches side by side: over learning curves, numbers of workers and seeds, all within the same virtual time.

Normalised regret of an incumbent: (best - incumbent) / (best - median). Best is the best value anywhere in the
table; for a function, the best that a local search finds. Median is the median of the values at the last fidelity over
the configurations. 0 is the best possible, 1 is the expected result of a configuration taken blindly. Before its first
report a search stands at 1.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tuner.schedulers.base import SchedulerSpec
from tuner.searchers.base import SearchSpec
from tuner.simulator.curves import Curves
from tuner.simulator.simulation import FREE, Costs, Trace, simulate
from tuner.spec.objective import Mode
from tuner.spec.quantities import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

QUARTER, WHOLE = 0.25, 1.0
"""Shares of the virtual time at which searches are compared."""

_DRAWS = 20
"""How many random searches `full_time` takes the mean of."""


@dataclass(frozen=True)
class Contender:
    """One experiment of a comparison."""

    name: str
    search: SearchSpec
    scheduler: SchedulerSpec
    curves: tuple[Curves, ...]
    """The same for all contenders, each with the contender's own space."""


@dataclass(frozen=True)
class Limits:
    """When a simulated search ends."""

    seconds: float | None = None
    """Virtual time; absent: `full_time` of ``full_trials``, or, with ``trials``, whatever they take."""
    trials: int | None = None
    """Configurations that are started at most."""
    full_trials: int = 20
    """So many whole trials make up the virtual time when neither of the others is given."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, with its standard error; a single seed has none."""

    mean: float
    standard_error: float | None


@dataclass(frozen=True)
class Row:
    """What one contender reached with one number of workers: over all seeds, and the mean of all curves."""

    experiment: str
    workers: int
    quarter: Estimate
    """Normalised regret at `QUARTER` of the virtual time."""
    whole: Estimate
    """At its end."""
    quarter_rank: float
    """Mean rank among the contenders over curves and seeds, 1 being the best; of equals the mean of their ranks."""
    whole_rank: float
    trials: float
    """Configurations started, in the mean of curves and seeds."""
    reports_per_s: float
    """Evaluations that the simulator did in a real second."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One contender on one table or function with one number of workers: a trace for each seed."""

    curves: Curves
    mode: Mode
    seconds: float
    """The virtual time that counts as 100 %."""
    traces: tuple[Trace, ...]

    def incumbents(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """One row a seed: the incumbent at these shares of the virtual time; NaN before the first report."""
        import numpy as np

        rows = np.full((len(self.traces), len(shares)), np.nan)
        for row, trace in zip(rows, self.traces, strict=True):
            reached = trace.times.searchsorted(shares * self.seconds, side="right")
            row[reached > 0] = trace.incumbents[reached[reached > 0] - 1]
        return rows

    def regrets(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """One row a seed: the normalised regret at these shares of the virtual time."""
        import numpy as np

        return np.nan_to_num(normalised_regret(self.curves, self.mode, self.incumbents(shares)), nan=1.0)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Contenders on tables or functions with several numbers of workers, each search repeated with the seeds 0, 1, …"""

    contenders: tuple[Contender, ...]
    mode: Mode
    workers: tuple[int, ...]
    seeds: int
    cells: Mapping[tuple[str, str, int], Cell]
    """By contender, curves and workers."""

    @property
    def curves(self) -> tuple[Curves, ...]:
        return self.contenders[0].curves

    def cell(self, contender: Contender, index: int, workers: int) -> Cell:
        """What ``contender`` did on its curves of that index."""
        return self.cells[contender.name, contender.curves[index].name, workers]

    def regrets(self, contender: Contender, workers: int, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """One row a seed: the mean regret over all curves at these shares of the virtual time."""
        import numpy as np

        cells = [self.cell(contender, i, workers) for i in range(len(self.curves))]
        return np.asarray(np.mean([cell.regrets(shares) for cell in cells], axis=0), dtype=np.float64)

    def rows(self) -> Iterator[Row]:
        """The result, by workers and contender."""
        import numpy as np

        shares = np.array([QUARTER, WHOLE])
        for workers in self.workers:
            ranks = self._ranks(workers, shares)
            for contender, (quarter_rank, whole_rank) in zip(self.contenders, ranks, strict=True):
                traces = [t for i in range(len(self.curves)) for t in self.cell(contender, i, workers).traces]
                quarter, whole = (estimate(column) for column in self.regrets(contender, workers, shares).T)
                yield Row(
                    contender.name,
                    workers,
                    quarter,
                    whole,
                    float(quarter_rank),
                    float(whole_rank),
                    trials=float(np.mean([trace.trials for trace in traces])),
                    reports_per_s=sum(trace.reports for trace in traces) / sum(trace.wall_s for trace in traces),
                )

    def _ranks(self, workers: int, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each contender (row) and share (column) the mean rank over curves and seeds."""
        import numpy as np
        from scipy.stats import rankdata

        indices = range(len(self.curves))
        regrets = np.array([[self.cell(c, i, workers).regrets(shares) for i in indices] for c in self.contenders])
        return np.asarray(rankdata(regrets, axis=0).mean(axis=(1, 2)), dtype=np.float64)


def compare(
    contenders: Sequence[Contender],
    mode: Mode,
    workers: Sequence[int],
    seeds: int,
    limits: Limits,
    say: Callable[[str], None] = lambda text: None,
    costs: Costs = FREE,
) -> Comparison:
    """Simulates everything; ``say`` hears of each number of workers and table or function that is done."""
    cells: dict[tuple[str, str, int], Cell] = {}
    for slots in workers:
        for i, curves in enumerate(contenders[0].curves):
            traces = {c.name: tuple(_searches(c, c.curves[i], mode, slots, seeds, limits, costs)) for c in contenders}
            latest = max(trace.finished_at for found in traces.values() for trace in found)
            seconds = _seconds(limits, curves, slots) or latest
            for c in contenders:
                cells[c.name, c.curves[i].name, slots] = Cell(c.curves[i], mode, seconds, traces[c.name])
            spent = sum(trace.wall_s for found in traces.values() for trace in found)
            at_once = counted(slots, "worker")
            say(f"{curves.name}, {at_once}: {seconds:.6g} virtual seconds simulated in {spent:.1f} s")
    return Comparison(tuple(contenders), mode, tuple(workers), seeds, cells)


def _searches(
    contender: Contender, curves: Curves, mode: Mode, workers: int, seeds: int, limits: Limits, costs: Costs
) -> Iterator[Trace]:
    seconds = _seconds(limits, curves, workers)
    for seed in range(seeds):
        trace = simulate(
            contender.search,
            contender.scheduler,
            curves,
            mode,
            workers=workers,
            seed=seed,
            seconds=seconds,
            trials=limits.trials,
            costs=costs,
        )
        yield replace(trace, decisions=[])  # 10,000 trials by 20 seeds would take gigabytes


def _seconds(limits: Limits, curves: Curves, workers: int) -> float | None:
    if limits.seconds is None and limits.trials is None:
        return full_time(curves, limits.full_trials, workers)
    return limits.seconds


def full_time(curves: Curves, trials: int, workers: int) -> float:
    """Virtual seconds in which random search without early stopping completes ``trials`` trials: the mean of 20."""
    import numpy as np

    rng = np.random.default_rng(0)
    ends = []
    for _ in range(_DRAWS):
        slots = [0.0] * workers
        for seconds in rng.choice(curves.sample[1][:, -1], trials):
            heapq.heapreplace(slots, slots[0] + float(seconds))
        ends.append(max(slots))
    return sum(ends) / _DRAWS


def normalised_regret(curves: Curves, mode: Mode, incumbents: NDArray[np.float64]) -> NDArray[np.float64]:
    """The regret of each of ``incumbents``, as the head of this file defines it; NaN stays NaN."""
    import numpy as np

    median = np.median(curves.sample[0][:, -1])
    best = curves.best(mode)
    return np.asarray((best - incumbents) / ((best - median) or 1.0), dtype=np.float64)


def estimate(values: NDArray[np.float64]) -> Estimate:
    """Mean and standard error of one value a seed."""
    import numpy as np

    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
    return Estimate(float(values.mean()), error)
