"""Searches on a function: trials are trained as what was asked, and regret is to the best that there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.tables import space
from tuner.errors import InputError
from tuner.schedulers.fifo import Fifo
from tuner.searchers.base import Searcher, SearchSpec
from tuner.searchers.random import Random
from tuner.simulator import CurveFunction, simulate
from tuner.simulator.comparison import full_time, normalised_regret
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem

Arrays = tuple[NDArray[np.float64], NDArray[np.float64]]
EPOCHS = np.arange(1, 5)
OPTIMUM = {"lr": 0.01, "layers": 3, "act": "relu"}


def bowl(configurations: Sequence[Configuration]) -> Arrays:
    """Highest, 0, at `OPTIMUM` and the last epoch; an epoch takes as many seconds as there are layers."""
    height = np.array(
        [
            -((np.log10(c["lr"]) + 2) ** 2) - (c["layers"] - 3) ** 2 / 4 - (c["act"] != "relu") - c.get("slope", 0.0)
            for c in configurations
        ]
    )
    layers = np.array([c["layers"] for c in configurations])
    return height[:, None] - 1 / EPOCHS + 1 / EPOCHS[-1], layers[:, None] * EPOCHS


def curves(function: Any = bowl) -> CurveFunction:
    domains = {
        "lr": {"loguniform": [1e-4, 1.0]},
        "layers": {"randint": [1, 9]},
        "act": {"choice": ["relu", "leaky"]},
        "slope": {"uniform": [0.1, 0.5], "when": {"act": "leaky"}},
    }
    return CurveFunction("bowl", space(domains), (1, 2, 3, 4), function)


class Asks(Searcher):
    def suggest(self, trial_id: str) -> Configuration:
        return dict(OPTIMUM)


class AsksSpec(SearchSpec):
    def build(self, task: SearchProblem) -> Searcher:
        return Asks()


def test_a_trial_trains_what_was_asked() -> None:
    trace = simulate(AsksSpec(), Fifo(), curves(), "max", workers=1, trials=1)
    assert trace.incumbents.tolist() == [-0.75, -0.25, -1 / 3 + 0.25, 0.0]
    assert trace.times.tolist() == [3, 6, 9, 12]


def test_the_best_is_found_between_the_draws_conditions_included() -> None:
    found = curves()
    assert found.best("max") > found.sample[0].max()
    assert found.best("max") == pytest.approx(0.0, abs=1e-7)
    assert found.best("min") < found.sample[0].min()


def test_regret_and_time_are_those_of_the_draws() -> None:
    found = curves()
    median = np.median(found.sample[0][:, -1])
    regrets = normalised_regret(found, "max", np.array([0.0, median, np.nan]))
    assert regrets[:2] == pytest.approx([0.0, 1.0], abs=1e-4)
    assert np.isnan(regrets[2])
    assert full_time(found, 400, 1) == pytest.approx(400 * 4 * found.sample[1][:, 0].mean(), rel=0.02)


def test_searches_of_one_seed_are_the_same() -> None:
    one, other = (simulate(Random(), Fifo(), curves(), "max", workers=2, trials=8, seed=3) for _ in range(2))
    assert one.decisions == other.decisions


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda configurations: (np.zeros(4), np.zeros(4)), r"arrays of \(4,\) and \(4,\), not \(1, 4\)"),
        (lambda configurations: (np.full((1, 4), np.nan), np.ones((1, 4))), "values must be finite"),
        (lambda configurations: (np.ones((1, 4)), np.array([[4.0, 3, 2, 1]])), "seconds cumulative"),
    ],
)
def test_what_is_no_curve_is_refused(function: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(Random(), Fifo(), curves(function), "max", workers=1, trials=1)
