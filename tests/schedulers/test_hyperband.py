"""HyperBand's brackets: the paper's sizes, and how they are filled and halved."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pydantic import ValidationError

from tests.schedulers.driver import Driver, by_quality, of
from tuner.schedulers.base import Decision, Resume, Scheduler, Stop
from tuner.schedulers.bohb import Bohb
from tuner.schedulers.hyperband import Brackets, HyperBand
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space

pytestmark = pytest.mark.filterwarnings("error")


def build(spec: Brackets, **options: Any) -> Scheduler:
    return spec.build(SearchProblem(Space(()), ("max",), trials=100, max_t=spec.max_t, seed=0))


def driver_of(spec: Brackets, trials: int, slots: int, **options: Any) -> Driver:
    generator = random.Random(trials)
    configurations = [{"x": generator.random()} for _ in range(trials)]
    return Driver(build(spec), by_quality, configurations, slots, last=spec.max_t, **options)


def reached(driver: Driver, trials: range, level: int) -> int:
    return sum(driver.trials[f"t{i}"].step >= level for i in trials)


def test_the_brackets_of_the_paper() -> None:
    """R = 81 and eta = 3 (Li et al. 2018, Table 1)."""
    spec = HyperBand()
    assert spec.s_max == 4
    assert [spec.size(s) for s in (4, 3, 2, 1, 0)] == [81, 34, 15, 8, 5]
    assert spec.rungs() == (1, 3, 9, 27, 81)


@pytest.mark.parametrize("slots", [1, 5, 200])
def test_the_rungs_of_every_bracket_have_the_papers_sizes(slots: int) -> None:
    spec = HyperBand(max_t=27)
    assert [spec.size(s) for s in (3, 2, 1, 0)] == [27, 12, 6, 4]
    driver = driver_of(spec, 49, slots)
    driver.run()
    sizes = [
        (range(27), {1: 27, 3: 9, 9: 3, 27: 1}),
        (range(27, 39), {1: 12, 3: 12, 9: 4, 27: 1}),
        (range(39, 45), {1: 6, 9: 6, 27: 2}),
        (range(45, 49), {1: 4, 27: 4}),
    ]
    for trials, levels in sizes:
        assert {level: reached(driver, trials, level) for level in levels} == levels
        best = max(trials, key=lambda i: driver.configurations[i]["x"])
        assert driver.trials[f"t{best}"].step == 27
    assert not of(driver.events, "close")


@pytest.mark.parametrize("trials", [1, 2, 5, 28, 30, 49, 60, 100])
@pytest.mark.parametrize(
    "spec", [HyperBand(max_t=27), Bohb(max_t=50, grace_period=3), HyperBand(max_t=16, reduction_factor=2.5)]
)
def test_the_expected_counts_are_exact(spec: Brackets, trials: int) -> None:
    driver = driver_of(spec, trials, slots=4)
    driver.run()
    counts = [reached(driver, range(trials), level) for level in spec.rungs()]
    assert counts == list(spec.expected_at_rungs(trials))


def test_short_trials_and_few_slots_are_stopped() -> None:
    driver = driver_of(HyperBand(max_t=27), 20, slots=2)
    driver.run()
    assert len(of(driver.events, "drop", "stop")) == 20
    assert sum(event.step == 27 for event in of(driver.events, "stop")) == 1
    assert sum(trial.step for trial in driver.trials.values()) < 20 * 27 / 4


def test_a_bracket_with_too_few_trials_decides_when_no_more_can_come() -> None:
    scheduler = build(HyperBand(max_t=9))
    for name in "abcd":
        scheduler.add(name, {})
        assert scheduler.report(name, 1, float(ord(name))) is Decision.PAUSE
    assert scheduler.next_action(more=True) is None
    assert [scheduler.next_action(more=False) for _ in range(5)] == [Stop("c"), Stop("b"), Stop("a"), Resume("d"), None]


def test_while_a_rung_waits_the_next_bracket_starts() -> None:
    spec = HyperBand(max_t=9)
    scheduler = build(spec)
    for i in range(spec.size(2) + 1):
        scheduler.add(f"t{i}", {})
    for i in range(1, 9):
        assert scheduler.report(f"t{i}", 1, i) is Decision.PAUSE
    assert scheduler.report("t9", 1, 9.0) is Decision.CONTINUE  # of the second bracket, whose first rung is 3
    assert scheduler.report("t9", 3, 9.0) is Decision.PAUSE
    assert scheduler.next_action(more=True) is None
    assert scheduler.report("t0", 1, 7.5) is Decision.CONTINUE  # the last to arrive is among the best three
    assert [type(scheduler.next_action(more=True)) for _ in range(9)] == [Stop] * 6 + [Resume] * 2 + [type(None)]


def test_the_last_to_arrive_is_stopped_at_once() -> None:
    scheduler = build(HyperBand(max_t=3))
    for name in "abc":
        scheduler.add(name, {})
    assert [scheduler.report("a", 1, 1.0), scheduler.report("b", 1, 2.0)] == [Decision.PAUSE] * 2
    assert scheduler.report("c", 1, 0.0) is Decision.STOP
    assert [scheduler.next_action(True) for _ in range(3)] == [Stop("a"), Resume("b"), None]


def test_failed_trials_are_the_worst_of_their_rung() -> None:
    scheduler = build(HyperBand(max_t=9))
    for i in range(9):
        scheduler.add(f"t{i}", {})
    for i in range(8):
        assert scheduler.report(f"t{i}", 1, i) is Decision.PAUSE
    scheduler.remove("t7")  # paused, and ended by the user
    scheduler.remove("t8")  # failed while it ran: the rung is complete
    actions = [scheduler.next_action(True) for _ in range(8)]
    assert actions[4:] == [Resume("t6"), Resume("t5"), Resume("t4"), None]
    assert {action.trial_id for action in actions[:4] if isinstance(action, Stop)} == {"t0", "t1", "t2", "t3"}


def test_a_trial_that_ends_after_the_verdict_is_not_resumed() -> None:
    scheduler = build(HyperBand(max_t=3))
    for name in "abc":
        scheduler.add(name, {})
    for name, value in (("a", 3.0), ("b", 2.0), ("c", 1.0)):
        scheduler.report(name, 1, value)
    scheduler.remove("a")
    assert [scheduler.next_action(True) for _ in range(2)] == [Stop("b"), None]


def test_ties_go_to_the_first() -> None:
    scheduler = build(HyperBand(max_t=3))
    for name in "abc":
        scheduler.add(name, {})
        last = scheduler.report(name, 1, 1.0)
    assert last is Decision.STOP
    assert [scheduler.next_action(True) for _ in range(3)] == [Stop("b"), Resume("a"), None]


def test_stop_last_trials() -> None:
    for stop, decision in ((True, Decision.STOP), (False, Decision.CONTINUE)):
        scheduler = build(HyperBand(max_t=1, stop_last_trials=stop))
        scheduler.add("a", {})
        assert scheduler.report("a", 1, 1.0) is decision
        assert scheduler.next_action(False) is None


def test_no_rung_is_below_the_grace_period() -> None:
    spec = HyperBand(max_t=50, grace_period=5)
    assert spec.rungs() == (6, 17, 50)
    assert [spec.size(s) for s in (2, 1, 0)] == [9, 5, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_t": 3, "grace_period": 4}, "grace_period 4 is above max_t 3"),
        ({"max_t": 100, "reduction_factor": 1.1}, "puts two rungs on training_iteration 1"),
        ({"reduction_factor": 1}, "greater than 1"),
        ({"reduction_factor": float("nan")}, "finite"),
        ({"stop_last_trials": 1}, "valid boolean"),
    ],
)
def test_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        HyperBand(**options)


def test_the_options_and_their_defaults_are_rays() -> None:
    import inspect

    from ray.tune.schedulers import HyperBandScheduler

    parameters = inspect.signature(HyperBandScheduler.__init__).parameters
    ours = {name: field.default for name, field in HyperBand.model_fields.items() if name in parameters}
    assert ours == {name: parameters[name].default for name in ours}
    assert set(parameters) - set(ours) == {"self", "metric", "mode"}
