"""Curves that grow: a viewer that takes over the tails has the same points as the server."""

from __future__ import annotations

import random

import pytest

from tuner.live.curve import Curve, points_of


def test_tails_add_up_to_the_curve() -> None:
    chosen = random.Random(0)
    curve, copy, seen, step = Curve(16), [], 0, 0
    for event in range(1, 600):
        step = step + 1 if chosen.random() < 0.9 else chosen.randint(1, step + 1)
        curve.put(event, step, step, event)
        if chosen.random() < 0.3:
            start = curve.since(seen)
            copy[start:] = zip(curve.xs[start:], curve.ys[start:], strict=True)
            seen = event
            assert copy == list(zip(curve.xs, curve.ys, strict=True))
            assert curve.since(seen) == len(copy)


def test_a_long_curve_is_thinned_evenly_and_keeps_its_ends() -> None:
    curve = Curve(100)
    for step in range(1, 10_001):
        curve.put(step, step, step, 0.0)
        assert len(curve.xs) <= 100
        assert (curve.xs[0], curve.xs[-1]) == (1, step)
    gaps = {b - a for a, b in zip(curve.xs[:-2], curve.xs[1:-1], strict=True)}
    assert len(gaps) == 1


@pytest.mark.parametrize("again_from", [1, 400, 899])
def test_a_trial_that_starts_again_has_a_curve_as_long_and_as_even(again_from: int) -> None:
    curve, steps = Curve(100), [*range(1, 901), *range(again_from, 1001)]
    for event, step in enumerate(steps, 1):
        curve.put(event, step, step, float(event > 900))
        assert len(curve.xs) <= 100
    gaps = {b - a for a, b in zip(curve.xs[:-2], curve.xs[1:-1], strict=True)}
    assert len(gaps) == 1
    assert (curve.xs[0], curve.xs[-1]) == (1, 1000)
    assert curve.ys == [float(x >= again_from) for x in curve.xs]


def test_a_step_that_is_reported_again_is_replaced() -> None:
    curve = Curve(100)
    for event, (step, value) in enumerate([(1, 0.1), (2, 0.2), (3, 0.3), (2, 0.5)], 1):
        curve.put(event, step, step, value)
    assert (curve.xs, curve.ys, curve.since(3)) == ([1, 2, 3], [0.1, 0.5, 0.3], 1)


def test_runs_of_many_trials_have_shorter_curves() -> None:
    assert points_of(1) == points_of(400) == 120
    assert sum(points_of(number) for number in range(1, 1001)) < 100_000
    assert sum(points_of(number) for number in range(1, 10_001)) < 250_000
