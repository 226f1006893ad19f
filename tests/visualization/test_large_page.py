"""The page of a large run: no larger than that of a smaller one, and it says what it leaves out."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from tests.benchmarks.made_up_run import made_up_run
from tests.visualization.test_report import add, figures, new_run, section, without_library
from tuner.runs.results import ResultSet
from tuner.visualization.curves import MOST_BARS, merged
from tuner.visualization.html import MOST_FAILURES, page
from tuner.visualization.thinning import MOST_POINTS, MOST_TRIALS, shown, spread
from tuner.visualization.timeline import TrialSpan


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """3,000 trials, of which the 600 that count by five failed."""
    results = made_up_run(tmp_path_factory.mktemp("runs") / "large", 3000, 3)
    for trial in results.trials:
        if trial.number % 5 == 0:
            trial.status, trial.reason, trial.rung = "failed", "ValueError: no", None
    return results


@pytest.fixture(scope="module")
def text(large: ResultSet) -> str:
    return page(large)


def points(text: str, name: str) -> int:
    return sum(x is not None for trace in figures(text)[name]["data"] for x in _listed(trace["x"]))


def _listed(values: object) -> list[object]:
    """A trace's values, which plotly packs where they are many."""
    if isinstance(values, list):
        return values
    assert isinstance(values, dict)
    import base64

    import numpy as np

    unpacked = np.frombuffer(base64.b64decode(values["bdata"]), np.dtype(values["dtype"]))
    return [None if math.isnan(value) else value for value in unpacked.tolist()]


def test_an_even_choice_keeps_both_ends() -> None:
    assert spread(range(10), 10) == [*range(10)]
    assert spread(range(100), 4) == [0, 33, 66, 99]
    for count in range(2, 60):
        for most in range(2, 20):
            found = spread(range(count), most)
            assert (found[0], found[-1]) == (0, count - 1)
            assert len(found) <= most
            assert len(set(found)) == len(found)


def test_the_best_the_latest_and_the_latest_failed_are_shown(large: ResultSet) -> None:
    rows = shown(large, 100)
    assert len(rows) == 100
    ranked = large.rank(large.trials)
    assert rows[:50] == ranked[:50]
    numbers = {trial.number for trial in rows}
    assert {5 * k for k in range(576, 601)} <= numbers  # failed
    assert {*range(2980, 3001)} <= numbers
    assert shown(large, 3000) == ranked


def test_the_page_of_many_trials_says_what_it_leaves_out(large: ResultSet, text: str) -> None:
    trials = section(text, "trials")
    assert trials.count("<tr>") == 1 + MOST_TRIALS
    left_out = "Shown are 1000 of the 3000 trials: the best, the latest, and the latest that failed; trials.csv has all"
    assert left_out in trials
    assert left_out in section(text, "curves")
    assert large.best is not None
    assert f">{large.best.id}<" in trials
    assert ">00000bb8<" in trials  # the latest
    failures = section(text, "failures")
    assert failures.count("<tr>") == 1 + MOST_FAILURES
    assert "Shown are the latest 500 of 600; failures.json has all of them." in failures
    assert "1000 of the 3000 trials, the best and an even choice" in section(text, "parallel")


def test_the_figures_of_many_trials_are_no_larger(tmp_path: Path, text: str) -> None:
    thousand = page(made_up_run(tmp_path / "thousand", 1000, 3))
    assert 0.7 * MOST_BARS < points(text, "timeline") <= MOST_BARS
    assert "Drawn are 3000 stays, with neighbours as one bar" in section(text, "timeline")
    for name in ("curves", "incumbent", "parallel"):
        assert points(text, name) <= 1.1 * points(thousand, name), name
    assert len(without_library(text)) < 1.3 * len(without_library(thousand))


def test_long_curves_are_thinned_and_keep_their_ends(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    for _ in range(3):
        add(results, *(1 - math.exp(-step / 9000) for step in range(30_000)))
    text = page(results)
    assert points(text, "curves") <= 1.2 * MOST_POINTS
    assert "Of each curve at most 16666 reports are drawn; results.parquet has all" in section(text, "curves")
    last = [_listed(trace["x"])[-1] for trace in figures(text)["curves"]["data"]]
    assert last == [30_000, 30_000]


def test_a_long_text_is_cut_in_its_cell(tmp_path: Path) -> None:
    results = new_run(tmp_path / "r")
    failed = add(results, status="failed")
    failed.reason = "x" * 1_000_000
    assert not re.search("x{3000}", without_library(page(results)))


def test_neighbouring_stays_are_one_bar_so_that_the_timeline_is_full() -> None:
    stays = [TrialSpan(f"t{i}", i, i + (0.9 if i % 7 else 1.0), i % 4) for i in range(10_000)]
    bars = merged(stays)
    assert len(bars) <= MOST_BARS
    assert sum(count for _, count in bars) == len(stays)
    assert min(bar.begin for bar, _ in bars) == 0
    assert max(bar.end for bar, _ in bars) == max(stay.end for stay in stays)
    assert merged(stays[:5]) == [(stay, 1) for stay in sorted(stays[:5], key=lambda stay: stay.lane)]
