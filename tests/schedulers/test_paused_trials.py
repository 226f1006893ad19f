"""Searchers learn from trials that are paused at a rung: under promotion most of them never end."""

from __future__ import annotations

import pickle
import statistics
from typing import Any

import pytest

from tests.spaces import space
from tuner.schedulers.asha.spec import Asha
from tuner.schedulers.base import Decision
from tuner.search.state import SearchState
from tuner.searchers.base import SearchSpec
from tuner.searchers.bohb.searcher import Bohb
from tuner.searchers.build import build_searcher
from tuner.searchers.hyperopt.spec import HyperOpt
from tuner.searchers.optuna.spec import Optuna
from tuner.searchers.random import Random
from tuner.spec.configuration import Configuration
from tuner.spec.objective import Objective
from tuner.spec.problem import SearchProblem

pytestmark = pytest.mark.filterwarnings("error")

LEARNERS = {
    "bohb": Bohb(min_points_in_model=3),
    "tpe": Optuna(sampler="tpe", n_startup_trials=5),
    "cmaes": Optuna(sampler="cmaes"),
    "nsga2": Optuna(sampler="nsga2", population_size=8),
    "hyperopt": HyperOpt(n_initial_points=5),
    "random with priors": Random(),
}


def all_paused(spec: SearchSpec, sign: int, objectives: int = 1, trials: int = 60) -> list[Configuration]:
    """What is suggested under promotion while every trial pauses at step 1, and none is resumed or ends."""
    over = space("x: {uniform: [0, 1], prior: 0.1, confidence: high}\ny: {uniform: [0, 1]}")
    objective = tuple(Objective(metric=name, mode="max") for name in ("a", "b")[:objectives])
    task = SearchProblem(over, ("max",) * objectives, trials, 9, 0)
    scheduler = Asha(variant="promotion", max_t=9, grace_period=1).build(task)
    state = SearchState(build_searcher(spec, task), scheduler, task.space, objective, "epoch")
    suggested = []
    for i in range(trials):
        configuration = state.suggest(f"t{i}")
        assert configuration is not None
        suggested.append(configuration)
        state.add(f"t{i}", configuration)
        value = -sign * ((configuration["x"] - 0.7) ** 2 + (configuration["y"] - 0.7) ** 2)
        metrics = {"epoch": 1, "a": value, "b": -sign * configuration["x"]}
        assert state.report(f"t{i}", 1, metrics, seconds=1.0) is Decision.PAUSE
    return suggested


@pytest.mark.parametrize("name", LEARNERS)
def test_it_learns_from_trials_that_are_paused(name: str) -> None:
    towards, away = all_paused(LEARNERS[name], 1), all_paused(LEARNERS[name], -1)
    assert towards != away

    def distance(found: list[Configuration]) -> float:
        return statistics.median(abs(c["x"] - 0.7) for c in found[30:])

    assert distance(towards) < distance(away)


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
def test_with_several_objectives_it_learns_from_trials_that_are_paused(name: str) -> None:
    assert all_paused(LEARNERS[name], 1, objectives=2) != all_paused(LEARNERS[name], -1, objectives=2)


@pytest.mark.parametrize("name", ["tpe", "cmaes", "nsga2", "hyperopt"])
def test_a_trial_that_runs_again_is_pending_again(name: str) -> None:
    over = space("x: {uniform: [0, 1]}\ny: {uniform: [0, 1]}")
    searcher = build_searcher(LEARNERS[name], SearchProblem(over, ("max",), 20, 9, 0))
    for i in range(8):
        searcher.suggest(str(i))
        searcher.on_report(str(i), 1, float(i))
        searcher.on_pause(str(i), 1, (float(i),))
    searcher.on_resume("3")
    restored = pickle.loads(pickle.dumps(searcher))
    for one in (searcher, restored):
        one.on_report("3", 3, 9.0)
        one.on_pause("3", 3, (9.0,))
        one.on_resume("3")
        one.on_end("3", 9, (10.0,))
        one.on_end("5", 1, (5.0,))
        one.on_end("6", 0, None)
    assert [searcher.suggest(f"n{i}") for i in range(5)] == [restored.suggest(f"n{i}") for i in range(5)]


@pytest.mark.parametrize("objectives", [1, 2])
def test_the_parents_of_a_generation_may_run_again(objectives: int) -> None:
    """NSGA-II chooses them once, while they wait, and compares them with their children later; or one may fail."""
    over = space("x: {uniform: [0, 1]}\ny: {uniform: [0, 1]}")
    spec = Optuna(sampler="nsga2", population_size=2)
    searcher = build_searcher(spec, SearchProblem(over, ("max",) * objectives, 20, 9, 0))
    for i in range(3):
        searcher.suggest(str(i))
        searcher.on_pause(str(i), 1, (float(i),) * objectives)
    for generation in range(3):
        for i in range(2):
            searcher.suggest(f"{generation} {i}")
            searcher.on_pause(f"{generation} {i}", 1, (float(i),) * objectives)
        searcher.on_resume(str(generation))
    searcher.on_end("0", 0, None)
    for i in range(5):
        assert searcher.suggest(f"last {i}")
        searcher.on_pause(f"last {i}", 1, (float(i),) * objectives)


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_a_sampler_is_shown_no_more_trials_however_many_are_paused(sampler: Any) -> None:
    """Twelve trials get to step 3, which is then modelled, and the others wait at step 1."""
    spec = Optuna(sampler=sampler, max_history=50)
    searcher: Any = build_searcher(spec, SearchProblem(space("x: {uniform: [0, 1]}"), ("max",), 200, 9, 0))
    for i in range(200):
        searcher.suggest(str(i))
        last = 3 if i < 12 else 1
        for step in range(1, last + 1):
            searcher.on_report(str(i), step, i / 200)
        searcher.on_pause(str(i), last, (i / 200,))
    searcher.suggest("running")
    assert len(searcher._study.get_trials(deepcopy=False)) <= 76
