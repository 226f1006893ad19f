"""ASHA with several objectives: who continues, when no one number decides."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

from tuner.experiment.reader import load_experiment
from tuner.plan.cluster import this_machine
from tuner.plan.planner import make_plan
from tuner.schedulers import Asha, Decision, Resume, Scheduler
from tuner.schedulers.asha.fronts import preferred
from tuner.search.new_state import new_state
from tuner.search.state import SearchState
from tuner.searchers import SearchProblem
from tuner.spec.objective import domination_ranks
from tuner.testing import space_of

SPACE = space_of({"x": {"uniform": [0, 1]}})
VARIANTS = pytest.mark.parametrize("variant", ["stopping", "promotion"])


def asha(variant: str, modes: tuple[Any, ...] = ("max", "min"), **options: Any) -> Scheduler:
    spec = Asha(variant=variant, **({"max_t": 9, "grace_period": 1, "reduction_factor": 3} | options))  # type: ignore[arg-type]
    return spec.build(SearchProblem(SPACE, modes, 100, 9, 0))


def survivors(scheduler: Scheduler, points: list[tuple[float, float]]) -> list[int]:
    """The trials that continue from the first rung, after all came to it."""
    continued = []
    for i, values in enumerate(points):
        scheduler.add(str(i), {})
        if scheduler.report_all(str(i), 1, values) is Decision.CONTINUE:
            continued.append(i)
    while isinstance(action := scheduler.next_action(True), Resume):
        continued.append(int(action.trial_id))
    return sorted(continued)


def trade_off(count: int) -> list[tuple[float, float]]:
    """Accuracy and size of trials, a third of them on the front: larger is more accurate; the others waste a part."""
    rng = default_rng(0)
    sizes, wastes = rng.random(count), rng.uniform(0.2, 0.4, count)
    wastes[::3] = 0
    return list(zip((sizes - wastes).tolist(), sizes.tolist(), strict=True))


@VARIANTS
def test_those_on_the_front_continue_wherever_they_lie_on_it(variant: str) -> None:
    points = trade_off(90)
    found = survivors(asha(variant), points)
    assert {i % 3 for i in found[10:]} == {0}
    sizes = [points[i][1] for i in found]
    assert min(sizes) < 0.2
    assert max(sizes) > 0.8
    # the first objective alone keeps large ones only
    large = [points[i][1] for i in survivors(asha(variant, ("max",)), points)[10:]]
    assert min(large) > 0.4


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=30))
def test_an_earlier_front_comes_first(points: list[tuple[float, float]]) -> None:
    order = preferred(np.array(points, dtype=float))
    assert sorted(order) == list(range(len(points)))
    ranks = domination_ranks(points)
    assert [ranks[i] for i in order] == sorted(ranks)


def test_within_a_front_the_farthest_comes_first() -> None:
    line = [(x, 1 - x) for x in (0.5, 0.45, 0.9, 0.0, 0.55)]
    assert preferred(np.array(line))[:3] == [2, 3, 1]


@VARIANTS
def test_of_equal_trials_a_third_continues(variant: str) -> None:
    assert len(survivors(asha(variant), [(1.0, 1.0)] * 30)) in (10, 11)


def test_a_rung_compares_with_a_bounded_number() -> None:
    scheduler, rng = asha("stopping"), default_rng(0)
    sizes = []
    for i in range(1000):
        scheduler.add(str(i), {})
        scheduler.report_all(str(i), 1, tuple(rng.random(2)))
        scheduler.remove(str(i))
        if i in (500, 999):
            sizes.append(len(pickle.dumps(scheduler)))
    assert sizes[1] < 1.05 * sizes[0]


@VARIANTS
def test_the_first_rung_stays_where_it_begins(variant: str) -> None:
    auto, fixed = (asha(variant, grace_period=grace, max_t=5) for grace in ("auto", 1))
    points = trade_off(60)
    assert survivors(auto, points) == survivors(fixed, points)


def state(folder: Path, variant: str, weights: bool) -> SearchState:
    """As a search begins."""
    (folder / "t_fronts.py").write_text("def train(config): ...")
    weight = {"weight": 1} if weights else {}
    experiment = {
        "trainable": "t_fronts.py:train",
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": [{"metric": "accuracy", "mode": "max"} | weight, {"metric": "size", "mode": "min"} | weight],
        "search": {"kind": "random", "seed": 0},
        "scheduler": {
            "kind": "asha",
            "variant": variant,
            "time_attr": "epoch",
            "max_t": 9,
            "grace_period": 1,
            "reduction_factor": 3,
        },
    }
    return new_state(make_plan(load_experiment(experiment, []), this_machine()), [])


@VARIANTS
@pytest.mark.parametrize("weights", [False, True])
def test_a_search_compares_fronts_unless_the_objectives_have_weights(
    user_folder: Path, variant: str, weights: bool
) -> None:
    """And the same after it was stored and read again."""
    search, points, continued = state(user_folder, variant, weights), trade_off(90), []
    for i, (accuracy, size) in enumerate(points):
        search.add(str(i), {})
        metrics = {"accuracy": accuracy, "size": size, "epoch": 1}
        if search.report(str(i), 1, metrics, seconds=1.0) is Decision.CONTINUE:
            continued.append(i)
        if i % 10 == 0:
            search = pickle.loads(pickle.dumps(search))
    while isinstance(action := search.next_action(True), Resume):
        continued.append(int(action.trial_id))
    sums = [(accuracy - size, 0.0) for accuracy, size in points]
    one = survivors(asha(variant, ("max",)), sums)
    assert sorted(continued) == (one if weights else survivors(asha(variant), points))


def test_a_promotion_is_of_the_best_of_all_that_wait_however_many_came() -> None:
    """200 trials that came later are worse than all before them."""
    scheduler = asha("promotion")
    good, bad = [(2 - i / 200, i / 200) for i in range(200)], [(-1 - i / 200, 2 + i / 200) for i in range(600)]
    assert survivors(scheduler, good + bad)[:200] == list(range(200))
