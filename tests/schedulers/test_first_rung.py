"""How far early ranks are trusted, and the first rung that follows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tables import EPOCHS, by_formula, space
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.schedulers.asha.adaptive import AdaptiveStopping
from tuner.schedulers.asha.first_rung import FirstRungSelector, possible_ladders, possible_rungs, starting_rung
from tuner.schedulers.asha.spec import Asha
from tuner.schedulers.base import Decision
from tuner.searchers.random import Random
from tuner.simulator import Table, simulate
from tuner.simulator.comparison import normalised_regret
from tuner.storage.folder import RunFolder
from tuner.visualization.text_tables import first_rung_line

pytestmark = pytest.mark.filterwarnings("error")

Curve = Callable[[float, int], float]
"""(quality of a trial between 0 and 1, step) -> what it reports."""


def informative(quality: float, step: int) -> float:
    return quality + step


def says_nothing(quality: float, step: int) -> float:
    """The same for all at step 1."""
    return 0.1 if step == 1 else quality


def noise(quality: float, step: int) -> float:
    """Steps 1 and 2 are drawn at random."""
    return random.Random(f"{quality} {step}").random() if step <= 2 else quality


def crossing(turn: int) -> Curve:
    """The best are the worst before step ``turn``."""
    return lambda quality, step: quality if step >= turn else -quality


def searched(curve: Curve, trials: int = 150, max_t: int = 50, eta: float = 3, seed: int = 0) -> FirstRungSelector:
    """The trust after ``trials`` random trials, one after the other."""
    scheduler, generator = AdaptiveStopping(max_t, eta, 1, True), random.Random(seed)
    for i in range(trials):
        run(scheduler, f"t{i}", curve, generator.random(), max_t)
    return scheduler.trust


def run(scheduler: AdaptiveStopping, trial_id: str, curve: Curve, quality: float, max_t: int) -> int:
    """The step at which it was stopped."""
    for step in range(1, max_t + 1):
        if scheduler.report(trial_id, step, curve(quality, step)) is Decision.STOP:
            return step
    raise AssertionError("no trial runs beyond max_t")


@given(st.integers(2, 12) | st.sampled_from([2.5, 3.7, 9.9]), st.integers(1, 100_000))
@settings(max_examples=200, deadline=None)
def test_possible_rungs(eta: float, max_t: int) -> None:
    rungs = possible_rungs(eta, max_t)
    assert rungs[-1] == max_t
    assert rungs[0] == 1
    assert list(rungs) == sorted(set(rungs))
    for ladder in possible_ladders(eta, max_t):
        assert list(ladder) == sorted(set(ladder))
        assert set(ladder) < set(rungs)
    assert starting_rung(rungs, max_t) in rungs


@pytest.mark.parametrize(("max_t", "start"), [(1, 1), (9, 2), (27, 6), (50, 9), (81, 18), (100, 18), (1000, 243)])
def test_where_a_search_begins(max_t: int, start: int) -> None:
    selector = FirstRungSelector(3, max_t)
    assert selector.first_rung == start
    assert selector.rungs[:1] == ((start,) if start < max_t else ())


@pytest.mark.parametrize("max_t", [50, 200])
@pytest.mark.parametrize("eta", [2, 3, 4])
def test_informative_ranks_bring_the_first_rung_to_1(eta: float, max_t: int) -> None:
    selector = searched(informative, trials=300, max_t=max_t, eta=eta)
    assert FirstRungSelector(eta, max_t).first_rung > 1
    assert selector.first_rung == 1
    assert selector.rungs == possible_ladders(eta, max_t)[0]


@pytest.mark.parametrize("curve", [says_nothing, noise])
def test_ranks_that_say_nothing_are_no_rung(curve: Curve) -> None:
    last = {"says_nothing": 1, "noise": 2}[curve.__name__]
    selector = searched(curve, trials=300)
    assert selector.first_rung > last
    untrusted = [recall for recall in selector.recalls() if recall.level <= last]
    assert all(recall.share < 0.6 and recall.elites for recall in untrusted)


@pytest.mark.parametrize("diverged", [False, True], ids=["all equal", "one in ten below"])
@pytest.mark.parametrize("last", [10, 20])
def test_a_plateau_longer_than_the_starting_rung_is_left_behind(last: int, diverged: bool) -> None:
    """The start is 9: where nobody passed the plateau, no trial would ever show that its ranks say nothing."""

    def plateau(quality: float, step: int) -> float:
        chance = 0.0 if diverged and quality < 0.1 else 0.1
        return chance if step <= last else quality

    selector = searched(plateau, trials=300)
    assert selector.first_rung > last
    assert len(selector.qualities[50]) >= 20


@pytest.mark.parametrize("turn", [5, 15, 30])
def test_ranks_that_mislead_raise_the_first_rung_above_the_crossing(turn: int) -> None:
    """Though trials that were cut never show how they would have continued."""
    selector = searched(crossing(turn), trials=300)
    assert selector.first_rung == min(level for level in selector.levels if level >= turn)
    assert all((recall.share < 0.3) == (recall.level < turn) for recall in selector.recalls())


def test_trust_is_lost_and_won_again() -> None:
    """The same search comes to curves that cross late, and to curves that do not."""
    scheduler, generator, firsts = AdaptiveStopping(50, 3, 1, True), random.Random(0), []
    for phase, curve in enumerate((crossing(15), informative)):
        for i in range(400):
            run(scheduler, f"{phase} {i}", curve, generator.random(), 50)
        firsts.append(scheduler.trust.first_rung)
    assert firsts[0] == 18
    assert firsts[1] < 18


def test_nothing_is_measured_of_a_first_trial() -> None:
    selector = FirstRungSelector(3, 50)
    for level in selector.levels:
        selector.record("a", level, 1.0)
    assert all(recall.elites == 0 for recall in selector.recalls())
    assert [recall.share for recall in selector.recalls()] == [pytest.approx(1 / 3)] * 4 + [1.0] * 3


@pytest.mark.parametrize(("max_t", "share"), [(5, (1 + 1) / (2 + 1)), (50, (1 + 3 / 3) / (2 + 3))])
def test_a_recall_by_hand(max_t: int, share: float) -> None:
    """Twelve trials reach 1 and 3 uncut; of the two elites of 3, one was the best at 1 and one the fifth.

    With max_t 5 a search begins at 1, which is believed; with 50 at 9, and 1 is not.
    """
    selector = FirstRungSelector(3, max_t)
    at_1 = dict(zip("abcdefghijkl", range(12, 0, -1), strict=True))
    for level, qualities in ((1, at_1), (3, at_1 | {"e": 11.5, "b": 0.0})):
        for name, quality in qualities.items():
            selector.rungs = ()  # nobody is cut
            selector.record(name, level, quality)
    recall = selector.recalls()[0]
    assert (recall.level, recall.elites) == (1, 2)
    assert recall.share == pytest.approx(share)


def test_of_those_that_were_cut_the_best_of_the_best_count() -> None:
    """The elites of 3 were second and third of 18 at 1: both in the best third, and one in the best ninth."""
    shares = []
    for rungs in ((), (1,)):
        selector = FirstRungSelector(3, 5)
        at_1 = {f"t{i}": float(i) for i in range(18)}
        for level, qualities in ((1, at_1), (3, {"t16": 9.0, "t15": 8.0} | {f"t{i}": 0.0 for i in range(4)})):
            for name, quality in qualities.items():
                selector.rungs = rungs
                selector.record(name, level, quality)
        shares.append(selector.recalls()[0].share)
    assert shares == pytest.approx([1, (1 + 1) / (2 + 1)])


def test_a_trial_reaches_a_level_once() -> None:
    selector = FirstRungSelector(3, 50)
    assert selector.reached("a", 1) == 1
    selector.record("a", 1, 0.5)
    assert selector.reached("a", 1) is None
    assert selector.reached("a", 5) == 3  # a trial that reports every fifth step
    selector.record("a", 3, 0.5)
    assert selector.reached("a", 2) is None  # it continued from an earlier checkpoint
    assert selector.reached("a", 60) == 50


def test_trust_is_measured_ever_more_rarely() -> None:
    """So that the cost of a decision does not grow with the number of trials."""
    measured = []

    class Counting(FirstRungSelector):
        def _move(self) -> None:
            measured.append(len(self.qualities[1]))

    selector, generator = Counting(3, 50), random.Random(0)
    for i in range(10_000):
        selector.record(f"t{i}", 1, generator.random())
    assert len(measured) < 20 + math.log(10_000, 1.05)
    assert measured[-1] > 9_000


@pytest.mark.parametrize("variant", ["stopping", "promotion"])
@pytest.mark.parametrize(("informative", "best", "worst"), [(True, 1, 27), (False, 9, 1)])
def test_about_as_good_as_the_best_fixed_grace_period(
    informative: bool, best: int, worst: int, variant: Literal["stopping", "promotion"]
) -> None:
    table = Table.of(by_formula(informative), space(), "val_accuracy", "epoch")
    seconds = 8 * table.seconds[:, -1].mean()

    def regret(grace: int | Literal["auto"]) -> float:
        asha = Asha(time_attr="epoch", max_t=EPOCHS, grace_period=grace, reduction_factor=3, variant=variant)
        traces = [simulate(Random(), asha, table, "max", seed=seed, seconds=seconds) for seed in range(4)]
        return float(normalised_regret(table, "max", np.array([trace.incumbents[-1] for trace in traces])).mean())

    assert regret("auto") < 0.5 * regret(worst)
    assert regret("auto") < regret(best) + 0.05


def test_a_run_tells_where_its_first_rung_came_to_be_and_why() -> None:
    generator = random.Random(0)
    trials = [
        [Report(str(i), step, step, i * 100 + step, {"loss": -crossing(9)(quality, step)}) for step in range(1, 28)]
        for i, quality in enumerate(generator.random() for _ in range(60))
    ]
    results = finished_run("auto", trials)
    assert first_rung_line(results).startswith(
        "grace_period auto: first rung at training_iteration 9; of the best trials a cut "
    )
    assert first_rung_line(finished_run(3, trials)) == ""
    assert first_rung_line(finished_run("auto", [])).endswith("; nothing was measured yet")


def finished_run(grace_period: int | str, trials: list[list[Report]]) -> ResultSet:
    scheduler = {"kind": "asha", "grace_period": grace_period, "reduction_factor": 3, "max_t": 27}
    spec = {
        "objective": {"metric": "loss", "mode": "min"},
        "scheduler": scheduler | {"time_attr": "training_iteration"},
    }
    found = [Trial(str(i), i + 1, {}, reports=reports) for i, reports in enumerate(trials)]
    return ResultSet(RunFolder.at("runs/a"), spec, {}, found)
