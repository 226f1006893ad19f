"""Objectives with a known optimum, and searches of them in one process."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from tests.spaces import space
from tuner.searchers.base import Searcher, SearchSpec
from tuner.spec.configuration import Configuration
from tuner.spec.objective import Mode
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space

SQUARE = space("x: {uniform: [-5, 5]}\ny: {uniform: [-5, 5]}")
MIXED = space("""
lr: {loguniform: [1e-5, 1]}
layers: {randint: [1, 9]}
optimizer: {choice: [sgd, adam, lion]}
momentum: {uniform: [0, 1], when: {optimizer: sgd}}
decay: {uniform: [0, 1]}
""")


def quadratic(c: Configuration) -> float:
    return float((c["x"] - 2) ** 2 + (c["y"] + 1) ** 2)


def mixed(c: Configuration) -> float:
    loss = (math.log10(c["lr"]) + 2.7) ** 2 + 0.3 * abs(c["layers"] - 6) + (c["decay"] - 0.3) ** 2
    return float(loss + (4 * (c["momentum"] - 0.8) ** 2 if c["optimizer"] == "sgd" else 0.6))


def build(spec: SearchSpec, over: Space, seed: int = 0, mode: Mode = "min", max_t: int | None = None) -> Searcher:
    return spec.build(SearchProblem(space=over, modes=(mode,), trials=60, max_t=max_t, seed=seed))


def search(searcher: Searcher, loss: Callable[[Configuration], float], trials: int) -> list[Configuration]:
    suggested = []
    for i in range(trials):
        configuration = searcher.suggest(str(i))
        assert configuration is not None
        suggested.append(configuration)
        searcher.on_report(str(i), 1, loss(configuration))
        searcher.on_end(str(i), 1, (loss(configuration),))
    return suggested


def mean_best(
    spec: SearchSpec, over: Space, loss: Callable[[Configuration], float], trials: int, seeds: int = 20
) -> float:
    runs = (search(build(spec, over, seed), loss, trials) for seed in range(seeds))
    return statistics.mean(min(map(loss, run)) for run in runs)
