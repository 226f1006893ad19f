"""What a trial consumed: added up, written and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.runs.test_results import SPEC, new_run, report, trial
from tuner.runs.consumption import Consumption, of_ranks
from tuner.runs.events import is_event
from tuner.runs.history import EventApplier, state_of, trial_of
from tuner.runs.loading import load_run
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.schedulers.base import Decision
from tuner.search.emitted_events import reported
from tuner.storage.folder import RunFolder

ON_GPU = Consumption(1.5, 2.0, 0.5, 1.0, 1.25, 80.0)


def reports(*told: tuple[float, Consumption | None]) -> Trial:
    made = [Report("a", k, seconds, 0.0, {"acc": 0.5}, None, one) for k, (seconds, one) in enumerate(told, start=1)]
    return Trial("a", 1, {}, reports=made)


def test_the_peak_of_a_trial_is_the_highest_and_its_use_the_mean_over_time() -> None:
    found = reports(
        (1.0, Consumption(1.0, 4.0, 0.5, 3.0, 3.5, 90.0)),
        (4.0, Consumption(2.0, 3.0, 0.25, 2.0, 2.5, 50.0)),
        (9.0, None),
        (11.0, Consumption(1.5, 3.0, 0.25, 2.0, 2.5, None)),
    ).consumption
    assert found == Consumption(1.5, 4.0, 0.25, 3.0, 3.5, 60.0)


def test_what_was_not_measured_is_absent_and_never_zero() -> None:
    assert reports((1.0, None)).consumption == Consumption()
    assert Trial("a", 1, {}).consumption.named() == {}
    assert reports((1.0, Consumption(1.0, 2.0))).consumption.named() == {"host_gib": 1.0, "peak_host_gib": 2.0}
    without_time = reports((0.0, Consumption(1.0, 2.0, gpu_use=50.0)))
    assert without_time.consumption.gpu_use is None


def test_of_several_processes_host_memory_is_the_sum_and_gpu_memory_the_most() -> None:
    other = Consumption(1.0, 1.5, 0.75, 0.8, 0.9, 40.0)
    assert of_ranks([ON_GPU, other]) == Consumption(2.5, 3.5, 0.75, 1.0, 1.25, 60.0)
    assert of_ranks([Consumption(1.0, 2.0), Consumption(1.0, 2.0)]) == Consumption(2.0, 4.0)


def event(step: int, consumed: dict[str, Any] | None, **other: Any) -> dict[str, Any]:
    told = {} if consumed is None else {"consumed": consumed}
    fields = {"trial": "a", "step": step, "seconds": float(step), "timestamp": 1.0, "metrics": {"acc": 0.1}}
    return {"n": step, "what": "reported", **fields, "checkpoint": None, **told, **other}


def test_an_attempt_that_repeats_reports_does_not_lower_the_peak(tmp_path: Path) -> None:
    """The third report of the first attempt took 9 GiB; the second attempt replaces it."""
    applier = EventApplier(ResultSet(RunFolder.at(tmp_path), dict(SPEC), {}))
    applier.suggested("a", {})
    for step, peak in [(1, 2.0), (2, 2.0), (3, 9.0), (2, 1.0), (3, 1.5), (4, 1.5)]:
        told = event(step, {"host_gib": 1.0, "peak_host_gib": peak})
        assert is_event(told)
        assert applier.apply(told)
    found = applier.results.trial("a")
    assert [report.consumption.peak_host_gib for report in found.reports] == [2.0, 9.0, 9.0, 9.0]
    assert found.consumption.peak_host_gib == 9.0


def test_an_event_and_a_whole_trial_tell_what_was_consumed(tmp_path: Path) -> None:
    made = reports((1.0, ON_GPU), (2.0, None))
    for one in made.reports:
        fields = json.loads(json.dumps({"n": 1, "what": "reported", **reported(one, Decision.CONTINUE, None)}))
        assert is_event(fields)
        applier = EventApplier(ResultSet(RunFolder.at(tmp_path), dict(SPEC), {}))
        applier.suggested("a", {})
        applier.apply(fields)
        assert applier.results.trial("a").reports == [one]
    whole = json.loads(json.dumps({"n": 1, "what": "trial", "trial": "a", "state": state_of(made)}))
    assert is_event(whole)
    assert trial_of(whole).reports == made.reports


@pytest.mark.parametrize(
    "wrong",
    [
        {"host_gib": "1"},
        {"host_gib": -1},
        {"host_gib": True},
        {"x": 1.0},
        {"gpu_use": float("nan")},
        {"gpu_watts": 10**400},
        {"host_gib": None},
    ],
)
def test_an_event_that_tells_something_else_is_none(wrong: dict[str, Any]) -> None:
    assert is_event(event(1, {"host_gib": 1.0}))
    assert not is_event(event(1, wrong))
    state = state_of(reports((1.0, ON_GPU)))
    assert is_event({"n": 1, "what": "trial", "trial": "a", "state": state})
    state["reports"][0][-1] = wrong
    assert not is_event({"n": 1, "what": "trial", "trial": "a", "state": state})


def test_the_table_of_reports_has_a_column_for_what_was_measured_and_no_other(tmp_path: Path) -> None:
    results = new_run(tmp_path / "run")
    one = trial(results, 0.5, 0.6)
    one.reports[1] = Report(**fields_of(one.reports[1]) | {"consumption": Consumption(1.0, 2.0)})
    two = trial(results, 0.5)
    two.reports[0] = Report(**fields_of(two.reports[0]) | {"consumption": ON_GPU})
    results.save()
    written = pd.read_parquet(tmp_path / "run/results.parquet")
    assert [name for name in written if "/" in name] == [
        "system/host_gib",
        "system/peak_host_gib",
        "system/gpu_gib",
        "system/peak_gpu_gib",
        "system/peak_gpu_reserved_gib",
        "system/gpu_use",
    ]
    assert written["system/gpu_use"].isna().tolist() == [True, True, False]
    again = load_run(tmp_path / "run")
    assert [found.reports for found in again.trials] == [one.reports, two.reports]

    two.reports[0] = Report(**fields_of(two.reports[0]) | {"consumption": None})
    assert [name for name in results.frame() if "/" in name] == ["system/host_gib", "system/peak_host_gib"]


def test_trials_csv_has_the_peaks_and_the_use_of_each_trial_where_they_are_known(tmp_path: Path) -> None:
    results = new_run(tmp_path / "run")
    for told in (Consumption(1.0, 2.0), None, ON_GPU):
        made = trial(results, 0.5)
        made.reports[0] = Report(**fields_of(made.reports[0]) | {"consumption": told})
    results.save()
    written = pd.read_csv(tmp_path / "run/trials.csv", dtype=str, keep_default_na=False)
    assert list(written)[-3:] == ["peak_host_gib", "peak_gpu_gib", "gpu_use"]
    assert written.iloc[:, -3:].to_numpy().tolist() == [["2.0", "", ""], ["", "", ""], ["2.0", "1.0", "80.0"]]
    assert list(results.trials_frame()["gpu_use"].fillna(-1)) == [-1, -1, 80.0]
    del results.trials[2]
    assert list(results.trials_frame())[-2:] == ["checkpoint", "peak_host_gib"]


def fields_of(told: Report) -> dict[str, Any]:
    return {name: getattr(told, name) for name in Report.__dataclass_fields__}


def test_a_metric_of_the_same_name_does_not_stand_in_its_place(tmp_path: Path) -> None:
    results = new_run(tmp_path / "run")
    found = trial(results)
    report(found, 0.5, **{"system/host_gib": "high", "host_gib": 3.0, "system/other": 1.0})
    results.save()
    (told,) = load_run(tmp_path / "run").trials[0].reports
    assert told.metrics == {"acc": 0.5, "host_gib": 3.0, "system/other": 1.0}
    assert told.consumption is None


@pytest.mark.parametrize("wrong", [-1.0, float("inf"), "high", True])
def test_a_table_that_tells_something_else_is_damaged(tmp_path: Path, wrong: object) -> None:
    results = new_run(tmp_path / "run")
    trial(results, 0.5)
    results.save()
    file = tmp_path / "run/results.parquet"
    pd.read_parquet(file).assign(**{"system/host_gib": wrong}).to_parquet(file)
    with pytest.raises(Exception, match="host_gib"):
        load_run(tmp_path / "run")


def test_seconds_add_up_and_power_is_the_mean_over_the_time() -> None:
    told = reports(
        (1.0, Consumption(gpu_watts=100.0, data_s=0.25, checkpoint_s=0.0)),
        (4.0, Consumption(gpu_watts=300.0, checkpoint_s=0.5)),
        (6.0, None),
    ).consumption
    assert (told.gpu_watts, told.data_s, told.checkpoint_s) == (250.0, 0.25, 0.5)


def test_of_ranks_power_is_the_sum_and_the_longest_wait_counts() -> None:
    ranks = [Consumption(gpu_watts=100.0, data_s=0.25, checkpoint_s=0.1), Consumption(gpu_watts=200.0, data_s=0.5)]
    assert of_ranks(ranks) == Consumption(gpu_watts=300.0, data_s=0.5, checkpoint_s=0.1)
