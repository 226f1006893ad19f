"""ASHA's rungs and decisions, and that every option reaches Ray."""

from __future__ import annotations

import inspect
import random
import typing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tuner.schedulers import AnyScheduler
from tuner.schedulers.asha import Asha
from tuner.schedulers.base import SchedulerSpec
from tuner.schedulers.fifo import Fifo

SPECS: tuple[type[SchedulerSpec], ...] = typing.get_args(typing.get_args(AnyScheduler)[0])


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
def test_the_expected_counts_are_those_of_rays_scheduler(eta: float, max_t: int, trials: int) -> None:
    asha = Asha(reduction_factor=eta, max_t=max_t)
    reached, repeats = dict.fromkeys(asha.rungs(), 0), 60
    generator = random.Random(1)
    for _ in range(repeats):
        scheduler = asha.build("score", "max")
        for i in range(trials):
            runner, quality = SimpleNamespace(trial_id=f"t{i}"), generator.random()
            scheduler.on_trial_add(None, runner)
            for rung in asha.rungs():
                reached[rung] += 1
                result = {"training_iteration": rung, "score": quality}
                if scheduler.on_trial_result(None, runner, result) == "STOP":
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
        rungs = Asha(reduction_factor=1.00001, max_t=100).rungs()
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
        ray = asha.model_copy(update={"brackets": brackets}).build("loss", "min")
        for shift, bracket in enumerate(ray._brackets):
            milestones = sorted(int(np.ceil(m - 1e-9)) for m, _ in bracket._rungs)
            assert tuple(m for m in milestones if m < max_t) == rungs[shift:-1]


@pytest.mark.parametrize("max_t", [1, 2, 9, 10, 26, 27, 28, 80, 81, 100])
def test_no_bracket_is_without_rungs(max_t: int) -> None:
    """As many brackets as the specification allows."""
    most = len(Asha(max_t=max_t, reduction_factor=3).rungs())
    with pytest.raises(ValidationError, match="rungs"):
        Asha(max_t=max_t, reduction_factor=3, brackets=most + 1)
    assert len(Asha(max_t=max_t, reduction_factor=3, brackets=most).build("loss", "min")._brackets) == most


def decide(scheduler: Any, reports: list[tuple[str, int, float]]) -> list[str]:
    for name in dict.fromkeys(name for name, _, _ in reports):
        scheduler.on_trial_add(None, SimpleNamespace(trial_id=name))
    return [
        scheduler.on_trial_result(None, SimpleNamespace(trial_id=name), {"epoch": step, "m": value})
        for name, step, value in reports
    ]


@pytest.mark.parametrize("mode", ["max", "min"])
def test_decisions_of_a_rung_by_hand(mode: typing.Literal["min", "max"]) -> None:
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
    found = decide(asha.build("m", mode), [(name, step, sign * value) for name, step, value, _ in reports])
    assert found == [decision for *_, decision in reports]


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.integers(2, 5), st.sampled_from(["min", "max"]))
@settings(max_examples=100, deadline=None)
def test_who_is_among_the_best_of_a_rung_goes_on(
    values: list[float], eta: int, mode: typing.Literal["min", "max"]
) -> None:
    scheduler = Asha(time_attr="epoch", max_t=100, reduction_factor=eta).build("m", mode)
    found = decide(scheduler, [(str(i), 1, value) for i, value in enumerate(values)])
    sign = 1 if mode == "max" else -1
    for i, decision in enumerate(found):
        before = [sign * value for value in values[:i]]
        better = sum(value > sign * values[i] for value in before)
        if decision == "STOP":
            assert better > 0
            assert better >= (len(before) - 1) / eta
        else:
            assert better <= max(0, len(before) - 1) / eta + 1


def test_stop_last_trials() -> None:
    on = decide(Asha(time_attr="epoch", max_t=3).build("m", "max"), [("a", 3, 1.0)])
    off = decide(Asha(time_attr="epoch", max_t=3, stop_last_trials=False).build("m", "max"), [("a", 3, 1.0)])
    assert (on, off) == (["STOP"], ["CONTINUE"])


def test_every_option_reaches_ray() -> None:
    asha = Asha(time_attr="step", max_t=50, grace_period=2, reduction_factor=3, brackets=2, stop_last_trials=False)
    assert set(Asha.model_fields) - {"kind"} == asha.model_fields_set  # a new option belongs into this test
    ray = asha.build("acc", "max")
    assert (ray._time_attr, ray._max_t, ray._metric, ray._mode) == ("step", 50, "acc", "max")
    assert (ray._reduction_factor, ray._stop_last_trials, len(ray._brackets)) == (3, False, 2)
    assert [sorted(m for m, _ in bracket._rungs) for bracket in ray._brackets] == [[2, 6, 18], [6, 18]]
    assert all(not bracket._stop_last_trials for bracket in ray._brackets)


def test_every_option_of_ray_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that a later Ray adds."""
    from ray.tune import schedulers

    given: dict[str, Any] = {}
    signature = inspect.signature(schedulers.AsyncHyperBandScheduler.__init__)
    monkeypatch.setattr(schedulers, "AsyncHyperBandScheduler", lambda **options: given.update(options))
    Asha().build("loss", "min")
    assert set(given) == set(signature.parameters) - {"self"}


def test_the_order_of_options_and_their_defaults_are_rays() -> None:
    from ray.tune.schedulers import AsyncHyperBandScheduler

    ours = {name: field.default for name, field in Asha.model_fields.items() if name != "kind"}
    parameters = inspect.signature(AsyncHyperBandScheduler.__init__).parameters
    assert ours == {name: parameters[name].default for name in ours}


@pytest.mark.parametrize("spec", SPECS)
def test_the_contract_of_every_scheduler(spec: type[SchedulerSpec]) -> None:
    from ray.tune.schedulers import TrialScheduler

    adapter: TypeAdapter[Any] = TypeAdapter(AnyScheduler)
    value = adapter.validate_python({"kind": spec.model_fields["kind"].default})
    assert type(value) is spec
    assert adapter.validate_python(value.model_dump(mode="json")) == value
    assert isinstance(value.build("loss", "min"), TrialScheduler)
    assert value.build("loss", "min") is not value.build("loss", "min")
    assert len(value.rungs()) == len(value.expected_at_rungs(10))
    assert (value.fidelity is None) == (value.rungs() == ())
    with pytest.raises(ValidationError, match="extra_forbidden"):
        adapter.validate_python({"kind": value.kind, "no_such_option": 1})
    with pytest.raises(ValidationError, match="frozen"):
        value.kind = "other"


@pytest.mark.parametrize(
    "options",
    [
        {"max_t": 0},
        {"max_t": 2.5},
        {"max_t": "10"},
        {"max_t": True},
        {"grace_period": 0},
        {"grace_period": 5, "max_t": 4},
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


def test_fifo_stops_nothing() -> None:
    fifo = Fifo()
    assert (fifo.rungs(), fifo.fidelity, fifo.expected_at_rungs(10)) == ((), None, ())
    assert decide(fifo.build("m", "max"), [("a", 1, 1.0), ("b", 1, 0.0)]) == ["CONTINUE", "CONTINUE"]
