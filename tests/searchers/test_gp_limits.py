"""The Gaussian process of a limited metric that changes while a trial trains."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.random import default_rng

from tests.spaces import space
from tuner.searchers.base import PastTrial, Searcher
from tuner.searchers.build import build_searcher
from tuner.searchers.gp.limits import Limits
from tuner.searchers.gp.spec import Gp
from tuner.spec.problem import SearchProblem

MAX_T = 9


def searcher(seed: int = 0) -> Searcher:
    problem = SearchProblem(space("x: {uniform: [0, 1]}"), ("max",), 60, MAX_T, seed)
    return build_searcher(Gp(), problem)


def margin(x: float, step: int) -> float:
    """Only x up to 0.5 keeps the limit at the end, and nothing does before."""
    return 0.5 - x - (1 - step / MAX_T)


def trained(search: Searcher, trial_id: str, until: int) -> None:
    """Searches for a large x, in a trial of its own; the value rises, too."""
    suggested = search.suggest(trial_id)
    assert suggested is not None
    x = float(suggested["x"])
    for step in range(1, until + 1):
        search.on_margins(trial_id, (margin(x, step),))
        search.on_report(trial_id, step, x * step / MAX_T)
    search.on_end(trial_id, until, (x * until / MAX_T,))


def test_trials_that_were_stopped_before_they_could_keep_the_limit_tell_where_it_is() -> None:
    search = searcher()
    for number in range(24):
        trained(search, f"{number:02}", MAX_T if number % 4 == 3 else 3)
    asked = [search.suggest(f"late {number}") for number in range(8)]
    assert all(one is not None for one in asked)
    assert np.median([float(one["x"]) for one in asked if one is not None]) == pytest.approx(0.5, abs=0.1)


def test_a_stopped_trial_is_expected_to_keep_a_limit_that_others_kept_later() -> None:
    limits = Limits()
    for number, x in enumerate(default_rng(0).random(20)):
        for step in range(1, 10 if number % 2 else 4):
            limits.record(str(number), (margin(x, step),), step, MAX_T)
    limits.record("low", (margin(0.2, 1),), 1, MAX_T)
    limits.record("high", (margin(0.9, 1),), 1, MAX_T)
    view = dict.fromkeys([*map(str, range(20)), "low", "high"], True)
    assert limits.kept_by(view)[-2:].tolist() == [True, False]


def test_a_metric_that_stays_as_it_is_is_taken_as_it_is() -> None:
    limits = Limits()
    for number, x in enumerate((-0.3, 0.0, 0.3)):
        for step in range(1, 4 + number):
            limits.record(str(number), (x,), step, MAX_T)
    assert limits.kept_by(dict.fromkeys("012", True)).tolist() == [False, True, True]


def test_margins_of_earlier_runs_come_with_their_reports() -> None:
    search = searcher()
    for number in range(24):
        x, until = (number + 0.5) / 24, MAX_T if number % 4 == 3 else 3
        steps = range(1, until + 1)
        reports = tuple((step, x * step / MAX_T) for step in steps)
        margins = tuple((margin(x, step),) for step in steps)
        search.learn(PastTrial(f"earlier/{number}", {"x": x}, reports, until, reports[-1][1:], margins))
    asked = [search.suggest(str(number)) for number in range(8)]
    assert np.median([float(one["x"]) for one in asked if one is not None]) == pytest.approx(0.5, abs=0.1)
