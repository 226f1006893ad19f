"""ASHA's rungs and decisions, compared with Ray's."""

from __future__ import annotations

import inspect
import itertools
import math
import random
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.schedulers.driver import Driver, by_quality, of
from tuner.schedulers.asha.spec import Asha
from tuner.schedulers.base import Decision, Resume, Scheduler
from tuner.spec.configuration import Configuration
from tuner.spec.objective import Mode
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space

pytestmark = pytest.mark.filterwarnings("error")


def build(asha: Asha, mode: Mode = "max", seed: int = 0) -> Any:
    return asha.build(SearchProblem(Space(()), (mode,), trials=100, max_t=asha.max_t, seed=seed))


def rays(asha: Asha, mode: Mode) -> Any:
    from ray.tune.schedulers import AsyncHyperBandScheduler

    return AsyncHyperBandScheduler(metric="m", mode=mode, **asha.model_dump(exclude={"kind", "variant", "audit"}))


@pytest.mark.parametrize(
    ("grace", "eta", "max_t", "rungs"),
    [
        (1, 4, 100, (1, 4, 16, 64, 100)),
        (1, 3, 27, (1, 3, 9, 27)),
        (1, 3, 28, (1, 3, 9, 27, 28)),
        (1, 10, 1000, (1, 10, 100, 1000)),  # log(1000)/log(10) is 2.9999999999999996
        (1, 3, 243, (1, 3, 9, 27, 81, 243)),  # log(243)/log(3) is 4.999999999999999
        (1, 5, 125, (1, 5, 25, 125)),  # log(125)/log(5) is 3.0000000000000004
        (2, 3, 18, (2, 6, 18)),
        (5, 2, 5, (5,)),
        (5, 2, 9, (5, 9)),
        (1, 2, 1, (1,)),
        (1, 100, 10, (1, 10)),
        (1, 2.5, 20, (1, 3, 7, 16, 20)),
        (10, 1.1, 13, (10, 11, 13)),
        (4, 1.5, 20, (4, 6, 9, 14, 20)),
    ],
)
def test_rungs(grace: int, eta: float, max_t: int, rungs: tuple[int, ...]) -> None:
    asha = Asha(grace_period=grace, reduction_factor=eta, max_t=max_t)
    found = asha.rungs()
    assert found == rungs
    reach = asha.expected_at_rungs(1000)
    assert len(reach) == len(found)
    assert reach[0] == 1000
    assert list(reach) == sorted(reach, reverse=True)
    assert all(count >= 1000 / eta**k * 0.9 for k, count in enumerate(reach))


@pytest.mark.parametrize(("eta", "max_t", "trials"), [(3, 27, 30), (2, 16, 30), (4, 64, 20)])
def test_the_expected_counts_are_those_of_searches(eta: float, max_t: int, trials: int) -> None:
    asha = Asha(grace_period=1, reduction_factor=eta, max_t=max_t)
    reached, repeats = dict.fromkeys(asha.rungs(), 0), 60
    generator = random.Random(1)
    for _ in range(repeats):
        scheduler = build(asha)
        for i in range(trials):
            quality = generator.random()
            scheduler.add(f"t{i}", {})
            for rung in asha.rungs():
                reached[rung] += 1
                if scheduler.report(f"t{i}", rung, quality) is Decision.STOP:
                    break
    measured = [count / repeats for count in reached.values()]
    assert measured == pytest.approx(list(asha.expected_at_rungs(trials)), rel=0.15)


@pytest.mark.parametrize(("grace", "eta", "max_t"), [(1, 1.1, 10), (1, 1.5, 30), (10, 1.1, 13), (3, 1.2, 9)])
def test_rungs_are_different_steps_or_the_spec_is_refused(grace: int, eta: float, max_t: int) -> None:
    try:
        rungs = Asha(grace_period=grace, reduction_factor=eta, max_t=max_t).rungs()
    except ValidationError:
        return
    assert list(rungs) == sorted(set(rungs))


def test_a_factor_next_to_1_does_not_give_millions_of_rungs() -> None:
    try:
        rungs = Asha(grace_period=1, reduction_factor=1.00001, max_t=100).rungs()
    except ValidationError:
        return
    assert len(rungs) <= 100


@given(st.integers(1, 50), st.integers(2, 12) | st.sampled_from([2.5, 3.7, 9.9]), st.integers(1, 100_000))
@settings(max_examples=300, deadline=None)
def test_rays_milestones_are_the_rungs(grace: int, eta: float, max_t: int) -> None:
    assume(grace <= max_t)
    asha = Asha(grace_period=grace, reduction_factor=eta, max_t=max_t)
    rungs = asha.rungs()
    assert rungs[-1] == max_t
    assert list(rungs) == sorted(set(rungs))
    for brackets in {1, len(rungs) // 2 or 1}:
        ray = rays(asha.model_copy(update={"brackets": brackets}), "min")
        for shift, bracket in enumerate(ray._brackets):
            milestones = sorted(int(np.ceil(m - 1e-9)) for m, _ in bracket._rungs)
            assert tuple(m for m in milestones if m < max_t) == rungs[shift:-1]


@pytest.mark.parametrize("max_t", [1, 2, 9, 10, 26, 27, 28, 80, 81, 100])
def test_there_are_no_more_brackets_than_rungs(max_t: int) -> None:
    most = len(Asha(max_t=max_t, grace_period=1, reduction_factor=3).rungs())
    with pytest.raises(ValidationError, match="rungs"):
        Asha(max_t=max_t, grace_period=1, reduction_factor=3, brackets=most + 1)
    scheduler = build(Asha(max_t=max_t, grace_period=1, reduction_factor=3, brackets=most))
    scheduler.add("a", {})
    assert scheduler.report("a", max_t, 1.0) is Decision.STOP


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("stop_last_trials", [True, False])
@pytest.mark.parametrize(("brackets", "eta", "grace"), [(1, 4, 1), (1, 3, 2), (1, 2.5, 1), (3, 3, 1)])
def test_every_decision_of_the_stopping_variant_is_rays(
    brackets: int, eta: float, grace: int, stop_last_trials: bool, mode: Mode
) -> None:
    """Random curves, in a random order of reports; both draw brackets at random, so Ray is told of ours.

    ``max_t`` is no rung: with ``stop_last_trials: false`` Ray would compare there too.
    """
    asha = Asha(
        max_t=38, grace_period=grace, reduction_factor=eta, brackets=brackets, stop_last_trials=stop_last_trials
    )
    generator = random.Random(f"{brackets} {eta} {mode}")
    ours, ray = build(asha, mode, seed=3), rays(asha, mode)
    steps = {f"t{i}": 0 for i in range(200)}
    for name in steps:
        ours.add(name, {})
        ray._trial_info[name] = ray._brackets[ours._bracket[name]]
    stopped = compared = 0
    while steps:
        name = generator.choice(list(steps))
        steps[name] += 1
        value = generator.gauss(0, 1)
        result = {"training_iteration": steps[name], "m": value}
        theirs = ray.on_trial_result(None, SimpleNamespace(trial_id=name), result)
        decision = ours.report(name, steps[name], value)
        assert decision.name == theirs, (name, steps[name])
        compared += 1
        stopped += decision is Decision.STOP and steps[name] < asha.max_t
        if decision is Decision.STOP or steps[name] == asha.max_t + 2:
            ours.remove(name)
            del steps[name]
    assert stopped > 100
    assert compared > 500


def decide(scheduler: Scheduler, reports: list[tuple[str, int, float]]) -> list[str]:
    for name in dict.fromkeys(name for name, _, _ in reports):
        scheduler.add(name, {})
    return [scheduler.report(*report).name for report in reports]


@pytest.mark.parametrize("mode", ["max", "min"])
def test_decisions_of_a_rung_by_hand(mode: Mode) -> None:
    sign = 1 if mode == "max" else -1
    asha = Asha(time_attr="epoch", max_t=9, grace_period=2, reduction_factor=2)
    reports = [
        ("a", 1, 0.0, "CONTINUE"),  # below the grace period: whatever the value
        ("b", 1, 9.0, "CONTINUE"),
        ("a", 2, 0.5, "CONTINUE"),  # the first at its rung
        ("b", 2, 0.6, "CONTINUE"),  # above the median of 0.5
        ("c", 2, 0.4, "STOP"),  # below the median of 0.5, 0.6
        ("d", 2, 0.55, "CONTINUE"),  # above the median of 0.4, 0.5, 0.6
        ("e", 2, 0.45, "STOP"),  # below the median of four
        ("a", 3, 0.0, "CONTINUE"),  # between two rungs nothing is decided
        ("a", 4, 0.7, "CONTINUE"),
        ("b", 3, 0.6, "CONTINUE"),
        ("b", 4, 0.6, "STOP"),
        ("d", 4, 0.7, "CONTINUE"),  # as good as the median is good enough
        ("a", 8, 0.7, "CONTINUE"),
        ("a", 9, 0.7, "STOP"),  # max_t: complete
    ]
    found = decide(build(asha, mode), [(name, step, sign * value) for name, step, value, _ in reports])
    assert found == [decision for *_, decision in reports]


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.integers(2, 5), st.sampled_from(["min", "max"]))
@settings(max_examples=100, deadline=None)
def test_who_is_among_the_best_of_a_rung_goes_on(values: list[float], eta: int, mode: Mode) -> None:
    asha = Asha(time_attr="epoch", max_t=100, grace_period=1, reduction_factor=eta)
    found = decide(build(asha, mode), [(str(i), 1, value) for i, value in enumerate(values)])
    sign = 1 if mode == "max" else -1
    for i, decision in enumerate(found):
        before = [sign * value for value in values[:i]]
        better = sum(value > sign * values[i] for value in before)
        as_good = sum(value >= sign * values[i] for value in before)
        if decision == "STOP":
            assert as_good > 0
            assert as_good >= (len(before) - 1) / eta
        else:
            assert better <= max(0, len(before) - 1) / eta + 1


@pytest.mark.parametrize("eta", [2, 2.5, 3, 4])
@pytest.mark.parametrize("mode", ["max", "min"])
def test_of_equal_values_one_in_eta_continues_in_the_order_of_arrival(eta: float, mode: Mode) -> None:
    """At a second rung again: a metric at chance must not end the search."""
    asha = Asha(max_t=100, grace_period=1, reduction_factor=eta)
    scheduler = build(asha, mode)
    names = [f"t{i}" for i in range(100)]
    for name in names:
        scheduler.add(name, {})
    survivors = [name for name in names if scheduler.report(name, 1, 0.1) is Decision.CONTINUE]
    assert survivors == [f"t{math.floor(k * eta)}" for k in range(math.ceil(100 / eta))]
    rung = asha.rungs()[1]
    again = [name for name in survivors if scheduler.report(name, rung, 0.1) is Decision.CONTINUE]
    assert len(again) == math.ceil(len(survivors) / eta)


@pytest.mark.parametrize("seed", range(5))
def test_equal_values_fill_the_places_that_better_ones_leave(seed: int) -> None:
    values = [1.0] * 10 + [0.0] * 90
    random.Random(seed).shuffle(values)
    scheduler = build(Asha(max_t=100, grace_period=1, reduction_factor=4))
    found = decide(scheduler, [(str(i), 1, value) for i, value in enumerate(values)])
    ones = [decision for decision, value in zip(found, values, strict=True) if value]
    assert 25 <= found.count("CONTINUE") <= 28
    assert ones.count("CONTINUE") >= 9


@pytest.mark.parametrize("grace", [1, "auto"])
def test_a_metric_that_stands_at_chance_for_some_steps_does_not_end_the_search(grace: int | Literal["auto"]) -> None:
    """Chance for four steps: with two rungs there one trial in nine comes to step 9, with ``auto`` all survive them."""
    asha = Asha(max_t=27, reduction_factor=3, grace_period=grace)
    configurations = [{"x": x / 100} for x in random.Random(0).sample(range(100), 100)]
    curve = lambda state, step, configuration: 0.1 if step <= 4 else configuration["x"]  # noqa: E731
    driver = Driver(build(asha), curve, configurations, slots=8, last=27)
    driver.run()
    steps = [trial.step for trial in driver.trials.values()]
    assert sum(step >= 9 for step in steps) >= 100 / 9
    if grace == "auto":
        assert min(steps) > 4
        best = max(range(100), key=lambda i: configurations[i]["x"])
        assert steps[best] == 27
        assert sum(step == 27 for step in steps) < 30


def test_stop_last_trials() -> None:
    on = decide(build(Asha(max_t=3)), [("a", 3, 1.0)])
    off = decide(build(Asha(max_t=3, stop_last_trials=False)), [("a", 3, 1.0)])
    assert (on, off) == (["STOP"], ["CONTINUE"])


def test_the_order_of_options_and_their_defaults_are_rays() -> None:
    """But for the first rung, which Ray has at 1: docs/benchmarks/search-quality.md has what that costs."""
    from ray.tune.schedulers import AsyncHyperBandScheduler

    added = ("kind", "variant", "audit")
    ours = {name: field.default for name, field in Asha.model_fields.items() if name not in added}
    parameters = inspect.signature(AsyncHyperBandScheduler.__init__).parameters
    theirs = {name: parameters[name].default for name in parameters if name in ours}
    assert list(ours) == list(theirs)
    assert ours.pop("grace_period") == "auto"
    assert theirs.pop("grace_period") == 1
    assert ours == theirs


@pytest.mark.parametrize(
    "options",
    [
        {"max_t": 0},
        {"max_t": 2.5},
        {"max_t": "10"},
        {"max_t": True},
        {"grace_period": 0},
        {"grace_period": 5, "max_t": 4},
        {"grace_period": "automatic"},
        {"grace_period": "auto", "reduction_factor": 1.9},
        {"grace_period": "auto", "brackets": 2},
        {"reduction_factor": 1},
        {"reduction_factor": 0.5},
        {"reduction_factor": float("nan")},
        {"reduction_factor": float("inf")},
        {"brackets": 0},
        {"time_attr": 3},
        {"time_attr": ""},
        {"stop_last_trials": 1},
        {"metric": "loss"},
        {"mode": "min"},
    ],
)
def test_what_asha_refuses(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Asha(**options)


class TestPromotion:
    ASHA = Asha(variant="promotion", max_t=27, grace_period=1, reduction_factor=3)

    def test_by_hand(self) -> None:
        scheduler = build(self.ASHA)
        for name in "abcdef":
            scheduler.add(name, {})
        assert scheduler.report("a", 1, 1.0) is Decision.PAUSE
        assert scheduler.report("b", 1, 2.0) is Decision.PAUSE
        assert scheduler.next_action(more=True) is None  # none of two is in the top third
        assert scheduler.report("c", 1, 0.0) is Decision.PAUSE
        assert [scheduler.next_action(more=True) for _ in range(2)] == [Resume("b"), None]
        assert scheduler.report("d", 1, 5.0) is Decision.PAUSE
        assert scheduler.next_action(more=True) == Resume("d")  # the best of four; b has the place of nobody
        assert scheduler.report("b", 2, 9.0) is Decision.CONTINUE
        assert scheduler.report("b", 3, 9.0) is Decision.PAUSE
        assert scheduler.next_action(more=True) is None
        assert scheduler.next_action(more=False) == Resume("b")  # the best of those that will come
        assert scheduler.report("e", 1, 4.0) is Decision.PAUSE
        assert scheduler.report("f", 1, 3.0) is Decision.PAUSE
        assert [scheduler.next_action(more=True) for _ in range(2)] == [Resume("e"), None]
        scheduler.remove("f")
        assert scheduler.report("b", 27, 9.0) is Decision.STOP

    @pytest.mark.parametrize("same", [True, False], ids=["all equal", "different"])
    @pytest.mark.parametrize("slots", [1, 4, 100])
    def test_rung_sizes_follow_the_reduction_factor(self, slots: int, same: bool) -> None:
        """Apart from those that were in the top third when few had come: of n trials about the square root of n."""
        generator = random.Random(1)
        configurations = [{"x": 0.5 if same else i / 81} for i in generator.sample(range(81), 81)]
        driver = Driver(build(self.ASHA), by_quality, configurations, slots, last=27)
        driver.run()
        reached = [sum(trial.step >= rung for trial in driver.trials.values()) for rung in self.ASHA.rungs()]
        assert reached[0] == 81
        for below, above in itertools.pairwise(reached):
            too_many = 0 if same else 2 * below**0.5
            assert below // 3 <= above <= -(-below // 3) + too_many
        best = max(range(81), key=lambda i: (configurations[i]["x"], -i))
        assert driver.trials[f"t{best}"].step == 27 or same
        assert of(driver.events, "close")  # those that nobody resumes


class TestAuto:
    """`FirstRungSelector` itself: test_trust.py."""

    @pytest.mark.parametrize("variant", ["stopping", "promotion"])
    def test_the_plan_lists_every_possible_rung(self, variant: Literal["stopping", "promotion"]) -> None:
        asha = Asha(grace_period="auto", max_t=50, reduction_factor=3, variant=variant)
        assert asha.rungs() == (1, 2, 3, 6, 9, 18, 27, 50)
        reach = asha.expected_at_rungs(100)
        fixed = Asha(grace_period=9, max_t=50, reduction_factor=3).expected_at_rungs(100)  # 9 is where it starts
        assert [reach[k] for k in (4, 6, 7)] == list(fixed)
        assert reach[0] == 100
        assert list(reach) == sorted(reach, reverse=True)

    @pytest.mark.parametrize("mode", ["max", "min"])
    def test_by_hand(self, mode: Mode) -> None:
        """With fewer than η trials at a rung nobody is compared; below the first rung nobody ever is."""
        sign = 1 if mode == "max" else -1
        scheduler = build(Asha(grace_period="auto", max_t=50, reduction_factor=3), mode)
        reports = [
            ("a", 1, 0.1, "CONTINUE"),
            ("b", 1, 0.2, "CONTINUE"),
            ("c", 1, 0.3, "CONTINUE"),
            ("a", 9, 0.1, "CONTINUE"),
            ("b", 9, 0.0, "CONTINUE"),
            ("c", 9, 0.05, "STOP"),
            ("a", 50, 0.0, "STOP"),
        ]
        found = decide(scheduler, [(name, step, sign * value) for name, step, value, _ in reports])
        assert found == [decision for *_, decision in reports]

    def test_promotion_pauses_where_the_first_rung_is(self) -> None:
        scheduler = build(Asha(grace_period="auto", max_t=50, reduction_factor=3, variant="promotion"))
        for name in "abc":
            scheduler.add(name, {})
            assert scheduler.report(name, 1, 1.0) is Decision.CONTINUE
        for name, value, decision in (("a", 1.0, "CONTINUE"), ("b", 1.5, "CONTINUE"), ("c", 1.0, "PAUSE")):
            assert scheduler.report(name, 9, value).name == decision
        assert scheduler.next_action(more=True) is None  # the last of two equals
        scheduler.add("d", {})
        scheduler.report("d", 1, 1.0)
        assert scheduler.report("d", 9, 2.0) is Decision.PAUSE
        assert scheduler.next_action(more=True) == Resume("d")

    def test_promotion_resumes_those_that_wait_at_a_rung_that_lost_trust(self) -> None:
        """Before step 9 the best look worst: they wait below the later first rung, and are not left there."""
        configurations = [{"x": x / 100} for x in random.Random(3).sample(range(100), 100)]
        asha = Asha(grace_period="auto", max_t=27, reduction_factor=3, variant="promotion")

        def crossing(state: float, step: int, configuration: Configuration) -> float:
            return float(configuration["x"]) * (1 if step >= 9 else -1)

        driver = Driver(build(asha), crossing, configurations, slots=8, last=27)
        driver.run()
        first = driver.scheduler.trust.first_rung  # type: ignore[attr-defined]
        assert first >= 9
        assert {trial.step for trial in driver.trials.values() if trial.step < first} == set()

    @pytest.mark.parametrize("variant", ["stopping", "promotion"])
    @pytest.mark.parametrize("slots", [1, 8])
    def test_goes_on_the_same_after_pickling(self, variant: Literal["stopping", "promotion"], slots: int) -> None:
        asha = Asha(grace_period="auto", max_t=27, reduction_factor=3, variant=variant)
        configurations = [{"x": x} for x in random.Random(0).choices(range(1000), k=150)]
        driver = Driver(build(asha), by_quality, configurations, slots, last=27)
        driver.run(200)
        restored = driver.copy()
        assert restored.run() == driver.run()
        ended = of(driver.events, "stop", "close", "return")
        assert len(ended) == 150
        assert any(event.step == 27 for event in ended)
