"""The public checks of third parties' algorithms: a right one passes, and each mistake is found and named."""

from __future__ import annotations

import doctest
import importlib
import itertools
import random
from typing import Any

import pytest

from tuner.errors import InputError, UserCodeRaised
from tuner.schedulers import (
    Asha,
    Bohb,
    Decision,
    Exploit,
    Fifo,
    HyperBand,
    Median,
    Pb2,
    Pbt,
    Resume,
    Scheduler,
    SchedulerSpec,
    TimedSpec,
)
from tuner.searchers import Grid, HyperOpt, Optuna, Searcher, SearchProblem, SearchSpec, Space
from tuner.searchers import Random as RandomSearch
from tuner.spec.configuration import Configuration
from tuner.testing import check_scheduler, check_searcher

PUBLIC = ("tuner.callback", "tuner.schedulers.base", "tuner.searchers.base", "tuner.spec.algorithm", "tuner.testing")


@pytest.mark.parametrize("module", PUBLIC)
def test_the_examples_of_the_extension_points_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0
    assert result.attempted > 0


@pytest.mark.parametrize(
    "spec",
    [RandomSearch(sequence="sobol"), Grid(), Optuna(sampler="cmaes", n_startup_trials=4), HyperOpt(n_initial_points=4)],
    ids=lambda spec: spec.kind,
)
def test_built_in_searches_pass(spec: SearchSpec) -> None:
    check_searcher(spec)


SCHEDULERS: list[SchedulerSpec] = [
    Asha(max_t=9),
    Asha(max_t=9, variant="promotion", grace_period="auto"),
    Bohb(max_t=9),
    Fifo(),
    HyperBand(max_t=9),
    Median(max_t=9),
    Pb2(max_t=20),
    Pbt(max_t=20),
    Pbt(max_t=20, time_attr="epoch"),
]


@pytest.mark.parametrize("spec", SCHEDULERS, ids=lambda spec: spec.kind)
def test_built_in_schedulers_pass(spec: SchedulerSpec) -> None:
    check_scheduler(spec)


class Broken(SearchSpec):
    fault: str = ""

    def build(self, task: SearchProblem) -> Searcher:
        return BrokenSearcher(task, self.fault)


_FRESH = itertools.count()


class BrokenSearcher(Searcher):
    def __init__(self, task: SearchProblem, fault: str) -> None:
        from numpy.random import default_rng

        self.space: Space = task.space
        self.fault = fault
        self.rng = default_rng(task.seed + (next(_FRESH) if fault == "seed" else 0))
        self.known: set[str] = set()

    def suggest(self, trial_id: str) -> Configuration | None:
        self.known.add(trial_id)
        found = self.space.sample(self.rng)
        if self.fault == "numpy":
            import numpy as np

            found["depth"] = np.int64(found["depth"])
        if self.fault == "outside":
            found["depth"] = 99
        return None if self.fault == "empty" else found

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        if self.fault == "unknown":
            self.known.remove(trial_id)

    def __getstate__(self) -> dict[str, Any]:
        from numpy.random import default_rng

        return {**self.__dict__, "rng": default_rng(5)} if self.fault == "pickle" else self.__dict__


def test_a_right_searcher_passes() -> None:
    check_searcher(Broken())


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("seed", AssertionError, "draw from task.seed alone"),
        ("numpy", InputError, "depth: "),
        ("outside", InputError, "no point of the search space: depth: "),
        ("empty", AssertionError, "suggested nothing"),
        ("pickle", AssertionError, "a searcher that was pickled continues differently"),
        ("unknown", UserCodeRaised, "search Broken raised"),
    ],
)
def test_faults_of_a_searcher_are_found(fault: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_searcher(Broken(fault=fault))


class Odd(TimedSpec):
    fault: str = ""

    def build(self, task: SearchProblem) -> Scheduler:
        return OddScheduler(self.fault)

    def rungs(self) -> tuple[int, ...]:
        return (5, 3) if self.fault == "rungs" else (3, self.max_t)

    @property
    def pauses(self) -> bool:
        return self.fault in ("donor", "stuck", "resume")


class OddScheduler(Scheduler):
    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.rng = random.Random(next(_FRESH) if fault == "seed" else 0)
        self.paused: list[str] = []

    def report(self, trial_id: str, step: int, value: float) -> Decision | Exploit:
        if self.fault == "early" and step == 2:
            return Decision.STOP
        if self.fault == "donor" and step == 3:
            return Exploit("nobody", {"x": 0.5, "y": "a"})
        if step == 3 and self.rng.random() < 0.5:
            return Decision.STOP
        return Decision.CONTINUE

    def next_action(self, more: bool) -> Resume | None:
        return Resume("t0") if self.fault == "resume" else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "rng": random.Random(9)} if self.fault == "pickle" else self.__dict__


def test_a_right_scheduler_passes() -> None:
    check_scheduler(Odd(max_t=9))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("rungs", "rungs must ascend"),
        ("seed", "decides differently for the same seed"),
        ("pickle", "decides differently after it was pickled"),
        ("early", "at step 2, where decides_at is false"),
        ("donor", "exploits 'nobody', which is not a trial"),
        ("resume", "that trial is not paused"),
    ],
)
def test_faults_of_a_scheduler_are_found(fault: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_scheduler(Odd(max_t=9, fault=fault))
