"""What trials consume, measured in their processes, as a run folder tells it."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from tests.execution.test_run import search
from tuner import load_run
from tuner.runs.consumption import COLUMNS
from tuner.runs.results import ResultSet
from tuner.search.memory_growth import RISES, WARM_UP

pytestmark = pytest.mark.usefixtures("ray_session")


def one_after_the_other(folder: Path, *what: str) -> ResultSet:
    return search(
        folder,
        "needs",
        {"what": {"grid_search": list(what)}},
        file="memory_toys.py",
        params={"mark": str(folder / "mark")},
        search={"kind": "grid"},
        resources={"gpu": 0, "max_concurrent_trials": 1},
        failures={"retries": 1},
    )


@pytest.mark.pairings
def test_each_trial_has_its_own_peak_and_one_that_keeps_memory_is_named(tmp_path: Path) -> None:
    results = one_after_the_other(tmp_path, "keeps", "drops")
    keeps, drops = results.trials
    assert [(trial.status, trial.steps) for trial in results.trials] == [("completed", 10)] * 2
    pids = {report.metrics["pid_"] for trial in results.trials for report in trial.reports}
    assert len(pids) == 1  # of which a peak since the start of the process would be the first trial's
    assert keeps.consumption.peak_host_gib > drops.consumption.peak_host_gib + 0.2
    assert keeps.consumption.host_gib > drops.consumption.host_gib + 0.2

    (notice,) = results.notices
    told = re.match(rf"trial {re.escape(keeps.label)}: host memory grows by (\d+) MiB per epoch \(", notice)
    assert told
    assert int(told[1]) == pytest.approx(32, abs=4)
    assert "use loss.item()" in notice

    written = pd.read_parquet(tmp_path / "run/results.parquet")
    assert [name for name in written if name in COLUMNS] == [
        "system/host_gib",
        "system/peak_host_gib",
        "system/checkpoint_s",
    ]
    for trial in results.trials:
        peaks = written[written.trial_id == trial.id]["system/peak_host_gib"]
        assert peaks.max() == trial.consumption.peak_host_gib
        assert {name for report in trial.reports for name in report.metrics} == {"epoch", "score", "pid_"}
    assert [trial.reports for trial in load_run(tmp_path / "run").trials] == [t.reports for t in results.trials]


@pytest.mark.pairings
def test_growth_counts_from_the_start_of_each_attempt(tmp_path: Path) -> None:
    results = one_after_the_other(tmp_path, "keeps, and fails")
    (trial,) = results.trials
    assert (trial.steps, len(trial.failures)) == (10, 1)
    assert WARM_UP + RISES == 10 - 2  # the second attempt has one report too few, all ten would do
    assert not results.notices


@pytest.mark.pairings
def test_a_peak_is_over_all_attempts_of_a_trial(tmp_path: Path) -> None:
    results = one_after_the_other(tmp_path, "drops", "peaks, and fails")
    drops, fails = results.trials
    assert len(fails.failures) == 1
    assert len({report.metrics["pid_"] for report in fails.reports}) == 2
    assert fails.reports[-1].consumption.peak_host_gib > drops.consumption.peak_host_gib + 0.2
    assert fails.reports[-1].consumption.peak_host_gib == fails.consumption.peak_host_gib
    assert fails.reports[-1].consumption.host_gib < drops.consumption.peak_host_gib + 0.1
    assert not results.notices
