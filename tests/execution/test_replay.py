"""A search on Ray and its replay in virtual time decide the same: what is measured in the simulator holds for runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner import load_run, run
from tuner.experiment.reader import load_experiment
from tuner.runs.failure import Failure
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.simulator import Table, simulate
from tuner.simulator.recording import record

pytestmark = [pytest.mark.pairings, pytest.mark.usefixtures("ray_session")]


class Order:
    """A listener that notes the reports in the order in which they came: (trial, epoch, value)."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, int, float]] = []

    def started(self, results: ResultSet) -> None:
        self.results = results

    def reported(self, trial: Trial, report: Report) -> None:
        self.reports.append((trial.number, report.metrics["epoch"], self.results.value(report)))

    def retried(self, trial: Trial, failure: Failure) -> None: ...
    def ended(self, trial: Trial) -> None: ...
    def tick(self) -> None: ...
    def finished(self, results: ResultSet) -> None: ...


@pytest.mark.parametrize("variant", ["stopping", "promotion"])
def test_a_run_of_digits_agrees_with_its_replay(tmp_path: Path, variant: str) -> None:
    experiment = load_experiment(
        "experiments/quickstart.yaml",
        {
            "params.epochs": 9,
            "search": {"kind": "random", "seed": 7},
            "scheduler": {"kind": "asha", "variant": variant, "time_attr": "epoch", "max_t": 9, "reduction_factor": 3},
            "budget": {"trials": 9},
            "tracking": {},
            "resources.max_concurrent_trials": 1,
        },
    )
    spec = experiment.spec
    order = Order()
    results = run(experiment, storage=tmp_path, name="run", listeners=[order], say=lambda text: None)
    assert results.count("stopped") > 3

    (tmp_path / "table.parquet").write_bytes(record(load_run(tmp_path / "run")).parquet())
    table = Table.read(tmp_path / "table.parquet", spec.search_space, results.metric, "epoch")
    trace = simulate(spec.search, spec.scheduler, table, "max", workers=1, seed=7, trials=9)

    reached: dict[int, int] = {}
    replayed = []
    for event in trace.decisions:
        number = int(event.trial)
        if event.step > reached.get(number, 0):  # a report: a paused trial that ends has none
            replayed.append((number, event.step, event.value))
            reached[number] = event.step
    assert replayed == order.reports
    ends = {int(event.trial): event.step for event in trace.decisions if event.what in ("stop", "complete")}
    assert ends == {trial.number: trial.reports[-1].metrics["epoch"] for trial in results.trials}
