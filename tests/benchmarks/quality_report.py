"""What `search_quality.py` prints and draws of finished searches."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gmean, rankdata

Array = NDArray[np.float64]

EARLY, END = 0.25, 1.0
"""Shares of the budget at which methods are compared."""

INFORMATIVE = (5, 0.6)
"""(fidelity, correlation of its ranks with the last) above which a table's early ranks are informative."""

REFERENCE = "random"
"""The method whose last regret the others race to."""

STEPS = 400
"""In so many the budget is divided."""

SHARES = np.linspace(0, 1, STEPS + 1)

STYLES = [("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", (0, (5, 1, 1, 1, 1, 1)))]
"""Colours of Okabe and Ito (2008), told apart by the line without colour too."""


class Results:
    """The regret of every search at `SHARES` of its budget."""

    def __init__(self, methods: list[str], tables: list[str], seeds: int) -> None:
        self.methods, self.tables = methods, tables
        self._curves = np.full((len(methods), len(tables), seeds, len(SHARES)), np.nan)
        self._wall = np.full((len(methods), len(tables), seeds), np.nan)

    def add(self, method: str, table: str, seed: int, outcome: dict[str, Any]) -> None:
        where = self.methods.index(method), self.tables.index(table), seed
        improvements = np.searchsorted(outcome["steps"], np.arange(STEPS + 1), side="right")
        self._curves[where] = np.array([1.0, *outcome["regrets"]])[improvements]
        self._wall[where] = outcome["wall_s"]

    def seeds(self, method: str) -> int:
        """How many seeds ran on every table."""
        ran = ~np.isnan(self._curves[self.methods.index(method), :, :, 0]).any(axis=0)
        return int(ran.sum())

    def curves(self, method: str, seeds: int) -> Array:
        """By table, seed and share."""
        return self._curves[self.methods.index(method), :, :seeds]

    def wall(self, method: str) -> float:
        """Mean real seconds of a search."""
        return float(np.nanmean(self._wall[self.methods.index(method)]))


def at(curves: Array, share: float) -> Array:
    """The regrets at one share of the budget."""
    chosen: Array = curves[..., np.searchsorted(SHARES, share)]
    return chosen


def ranks(results: Results, methods: Sequence[str], seeds: int, share: float) -> Array:
    """Of each method: its mean rank over tables and seeds; 1 is best."""
    regrets = np.array([at(results.curves(method, seeds), share) for method in methods])
    mean: Array = rankdata(regrets.round(6), axis=0).mean(axis=(1, 2))
    return mean


def time_to_reference(results: Results, method: str, tables: list[int], seeds: int) -> float:
    """Geometric mean over ``tables`` of the share of the budget in which ``method`` comes to random search's end."""
    curves = results.curves(method, seeds)[tables].mean(axis=1)
    goals = at(results.curves(REFERENCE, seeds), END)[tables].mean(axis=1)
    there = curves <= goals[:, None]
    return float(gmean(np.where(there.any(axis=1), SHARES[there.argmax(axis=1)], 1.0)))


def tables_of(results: Results, correlations: dict[str, dict[int, float]]) -> str:
    """Everything in Markdown; where methods ran different numbers of seeds, one comparison for each number."""
    fidelity, threshold = INFORMATIVE
    informative = [i for i, table in enumerate(results.tables) if correlations[table][fidelity] > threshold]
    parts = [_correlations(correlations)]
    for seeds in sorted({results.seeds(method) for method in results.methods} - {0}):
        methods = [method for method in results.methods if results.seeds(method) >= seeds]
        parts.append(_comparison(results, methods, seeds, informative))
    return "\n\n".join(parts)


def _correlations(correlations: dict[str, dict[int, float]]) -> str:
    steps = sorted({step for by_step in correlations.values() for step in by_step})
    lines = [_row(["table", *(f"rank correlation of {step} with the last" for step in steps)]), _rule(1 + len(steps))]
    lines += [_row([table, *(f"{by_step[step]:.2f}" for step in steps)]) for table, by_step in correlations.items()]
    return "\n".join(lines)


def _comparison(results: Results, methods: list[str], seeds: int, informative: list[int]) -> str:
    early, end = (ranks(results, methods, seeds, share) for share in (EARLY, END))
    head = ["method", "regret at 25 %", "regret at 100 %", "rank at 25 %", "rank at 100 %"]
    if REFERENCE in methods:
        head += [f"time to random's end, {len(informative)} informative tables", "… all tables"]
    lines = [f"{len(results.tables)} tables, {seeds} seeds:", "", _row([*head, "real seconds"]), _rule(len(head) + 1)]
    for i in np.argsort(early + end):
        curves = results.curves(methods[i], seeds)
        cells = [methods[i], _mean(at(curves, EARLY)), _mean(at(curves, END)), f"{early[i]:.2f}", f"{end[i]:.2f}"]
        if REFERENCE in methods:
            for chosen in (informative, list(range(len(results.tables)))):
                cells.append(f"{time_to_reference(results, methods[i], chosen, seeds):.2f}" if chosen else "")
        lines.append(_row([*cells, f"{results.wall(methods[i]):.1f}"]))
    return "\n".join(lines)


def _mean(regrets: Array) -> str:
    by_seed = regrets.mean(axis=0)
    error = f" ± {by_seed.std(ddof=1) / len(by_seed) ** 0.5:.3f}" if len(by_seed) > 1 else ""
    return f"{by_seed.mean():.3f}{error}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return "|" + "---|" * columns


def figure(results: Results, ours: set[str], patterns: list[str] | None, file: Path) -> None:
    """Mean regret over tables against the share of the budget: ours on the left, the others on the right.

    Without ``patterns`` the four of each side that rank best, and random search on both.
    """
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    seeds = min(results.seeds(method) for method in results.methods)
    mean_rank = sum(ranks(results, results.methods, seeds, share) for share in (EARLY, END))
    best_first = [results.methods[i] for i in np.argsort(mean_rank)]
    if patterns is not None:
        best_first = [m for m in best_first if any(fnmatch.fnmatch(m, pattern) for pattern in patterns)]
    plot, axes = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
    sides = (
        ("tuner", [m for m in best_first if m in ours]),
        ("other libraries", [m for m in best_first if m not in ours]),
    )
    for panel, (title, methods) in zip(axes, sides, strict=True):
        shown = [method for method in methods if method != REFERENCE][: len(STYLES)]
        for method, (colour, line) in zip(shown, STYLES, strict=False):
            _draw(panel, results, method, colour, line)
        if REFERENCE in results.methods:
            _draw(panel, results, REFERENCE, "#555555", ":")
        panel.set(title=title, xlabel="virtual time (% of the budget)", xlim=(0, 100), yscale="log")
        panel.set_ylim(top=1)
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.grid(True, which="both", color="#dddddd", linewidth=0.6)
        panel.legend(frameon=False, fontsize=9)
    axes[0].set_ylabel("mean normalised regret")
    tables = f"{len(results.tables)} table{'s' if len(results.tables) > 1 else ''}"
    plot.suptitle(f"Mean over {tables} and seeds; band: ± standard error over {seeds} or more seeds", fontsize=11)
    file.parent.mkdir(parents=True, exist_ok=True)
    plot.savefig(file, dpi=150)
    plt.close(plot)


def _draw(panel: Any, results: Results, method: str, colour: str, line: Any) -> None:
    by_seed = results.curves(method, results.seeds(method)).mean(axis=0)
    mean = by_seed.mean(axis=0)
    error = by_seed.std(axis=0, ddof=1) / len(by_seed) ** 0.5 if len(by_seed) > 1 else np.zeros_like(mean)
    panel.plot(100 * SHARES, mean, color=colour, linestyle=line, linewidth=1.8, label=method)
    panel.fill_between(100 * SHARES, mean - error, mean + error, color=colour, alpha=0.18, linewidth=0)
