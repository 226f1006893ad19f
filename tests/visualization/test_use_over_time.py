"""What all trials consumed together over the time of a search."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.runs.consumption import Consumption
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.storage.folder import RunFolder
from tuner.visualization.timeline import TimedReport, Timeline, TrialSpan
from tuner.visualization.use_over_time import BINS, Spans, busy_share, spans, use_over_time

SPEC = {"objective": {"metric": "loss", "mode": "min"}}


def search(*reports: tuple[str, int, float, Consumption | None], elapsed: float, stays: list[TrialSpan]) -> tuple:
    """``reports``: trial, step, second of the search, consumption."""
    results = ResultSet(RunFolder.at("r"), SPEC, {})
    told = Timeline("epoch", [], stays, elapsed)
    for trial_id, step, seconds, consumption in reports:
        trial = results.get(trial_id) or results.add(Trial(trial_id, 1, {}))
        trial.reports.append(Report(trial_id, step, seconds, 0.0, {"loss": 0.0}, consumption=consumption))
        told.moments.append(TimedReport(trial_id, step, seconds, 0.0, (0.0,)))
    return results, told


def test_a_report_tells_of_the_time_since_the_one_before_or_the_stay_began() -> None:
    stays = [TrialSpan("a", 1.0, 4.0), TrialSpan("b", 2.0, 3.0, 1), TrialSpan("a", 8.0, 9.0)]
    use = [Consumption(gpu_use=float(value)) for value in (10, 20, 30, 40)]
    results, told = search(
        ("a", 1, 2.0, use[0]),
        ("b", 1, 3.0, use[3]),
        ("a", 2, 4.0, use[1]),
        ("a", 3, 9.0, use[2]),
        ("b", 2, 9.5, None),
        elapsed=10.0,
        stays=stays,
    )
    known = spans(results, told)
    assert list(known) == ["gpu_use"]
    found = known["gpu_use"]
    assert list(zip(found.begin, found.end, found.value, strict=True)) == [
        (1, 2, 10),
        (2, 3, 40),
        (2, 4, 20),
        (8, 9, 30),
    ]
    results.provenance |= {"trial_resources": {"GPU": 1.0}, "cluster": [{"name": "n", "GPU": 4.0}]}
    assert busy_share(results, known, told) == pytest.approx((10 + 40 + 2 * 20 + 30) / (4 * 10))
    results.provenance["trial_resources"] = {"GPU": 0.5}  # of a GPU that trials share the use is not one trial's
    assert busy_share(results, known, told) is None


def test_trials_that_share_a_gpu_share_its_power() -> None:
    stays = [TrialSpan(name, 0.0, 1.0, lane) for lane, name in enumerate("ab")]
    watts = Consumption(gpu_watts=300.0)
    results, told = search(("a", 1, 1.0, watts), ("b", 1, 1.0, watts), elapsed=1.0, stays=stays)
    assert spans(results, told)["gpu_watts"].value.sum() == 600
    results.provenance["trial_resources"] = {"GPU": 0.5}
    assert spans(results, told)["gpu_watts"].value.sum() == 300


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.floats(0, 100)), min_size=1, max_size=20),
    st.integers(1, 7),
)
def test_integrals_are_those_of_each_span(rows: list[tuple[float, float, float]], bins: int) -> None:
    ordered = [(min(a, b), max(a, b), value) for a, b, value in rows]
    edges = np.linspace(0, 10, bins + 1)
    expected = [
        sum(value * max(0.0, min(end, high) - max(begin, low)) for begin, end, value in ordered)
        for low, high in pairwise(edges)
    ]
    assert Spans(*np.array(ordered).T).integral(edges) == pytest.approx(expected, abs=1e-6)


def test_the_figure_has_a_curve_and_an_axis_for_what_was_measured() -> None:
    stays = [TrialSpan("a", 0.0, 10.0), TrialSpan("b", 0.0, 5.0, 1)]
    one, two = Consumption(host_gib=1.0, gpu_use=80.0), Consumption(host_gib=2.0, gpu_use=40.0)
    results, told = search(("a", 1, 10.0, one), ("b", 1, 5.0, two), elapsed=20.0, stays=stays)
    drawn = use_over_time(spans(results, told), told)
    assert drawn is not None
    use, memory = drawn.data
    at = [BINS // 8, 3 * BINS // 8, 3 * BINS // 4]
    assert [use.y[i] for i in at] == [60, 80, 0]
    assert [memory.y[i] for i in at] == [3, 1, 0]
    assert (use.yaxis, memory.yaxis, drawn.layout.xaxis.anchor) == ("y", "y2", "y2")
    assert drawn.layout.yaxis.range == (0, 100)


def test_without_anything_measured_there_is_none() -> None:
    results, told = search(("a", 1, 1.0, None), elapsed=2.0, stays=[TrialSpan("a", 0.0, 1.0)])
    assert spans(results, told) == {}
    assert use_over_time({}, told) is None
    assert busy_share(results, {}, told) is None
