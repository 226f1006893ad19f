"""Trials with different configurations and equal curves are pointed out, and no others."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.runs.test_results import new_run, trial
from tuner.runs.results import ResultSet
from tuner.runs.trial import Segment
from tuner.visualization.html import page
from tuner.visualization.text_tables import overview
from tuner.visualization.twins import same_curves

CURVE = (0.5, 0.25, 0.125)


@pytest.fixture
def results(tmp_path: Path) -> ResultSet:
    return new_run(tmp_path / "run", mode="min")


def test_two_trials_that_differ_in_one_parameter_and_have_the_same_curve_are_named(results: ResultSet) -> None:
    trial(results, *CURVE, config={"lr": 0.1, "net": {"dropout": 0.1}})
    trial(results, 0.5, 0.25, 0.1, config={"lr": 0.2, "net": {"dropout": 0.1}})
    trial(results, *CURVE, config={"lr": 0.1, "net": {"dropout": 0.3}})
    told = same_curves(results)
    assert told == (
        "trials #1 (id1) and #3 (id3) differ in net.dropout only and have the same curve of acc, to the last bit: "
        "check that it reaches the training"
    )
    assert f"NOTICE: {told}" in overview(results, "finished").splitlines()
    assert told in page(results)


def test_a_trial_that_ended_early_is_compared_by_the_part_that_both_have(results: ResultSet) -> None:
    trial(results, *CURVE, config={"a": 1})
    trial(results, *CURVE, 0.06, 0.03, config={"a": 2})
    assert "differ in a only" in same_curves(results)


def test_the_pair_with_the_fewest_differences_is_shown_and_the_others_are_counted(results: ResultSet) -> None:
    trial(results, *CURVE, config={"a": 1, "b": 1})
    trial(results, *CURVE, config={"a": 2, "b": 2})
    trial(results, *CURVE, config={"a": 2, "b": 3})
    told = same_curves(results)
    assert "trials #2 (id2) and #3 (id3) differ in b only" in told
    assert told.endswith("(1 more pair of trials like these)")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (CURVE, (0.5, 0.25, 0.12500000000000003)),
        (CURVE[:2], CURVE[:2]),
        ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ((0.5, 0.5, 0.5, 0.4), (0.5, 0.5, 0.5, 0.3)),
        ((0.5, 0.25, math.nan), (0.5, 0.25, math.nan)),
        ((0.0, 0.5, 0.25), (-0.0, 0.5, 0.25)),
    ],
    ids=["last bit", "two reports", "constant", "constant in common", "NaN", "sign of zero"],
)
def test_other_curves_are_not_pointed_out(results: ResultSet, first: tuple[float, ...], second: Any) -> None:
    trial(results, *first, config={"a": 1})
    trial(results, *second, config={"a": 2})
    assert same_curves(results) == ""


def test_the_same_configuration_twice_is_no_surprise(results: ResultSet) -> None:
    trial(results, *CURVE, config={"a": 1})
    trial(results, *CURVE, config={"a": 1})
    assert same_curves(results) == ""


def test_a_trial_whose_configuration_changed_on_the_way_is_left_out(results: ResultSet) -> None:
    trial(results, *CURVE, config={"a": 1})
    trial(results, *CURVE, config={"a": 2}).segments.append(Segment(0, {"a": 1}))
    assert same_curves(results) == ""
