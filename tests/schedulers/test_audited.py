"""An audit of early stopping: who continues, what that changes for the others, and what is told of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.schedulers.driver import Driver, by_quality, of
from tests.spaces import space
from tuner.schedulers.asha.spec import Asha
from tuner.schedulers.audited import Audited
from tuner.schedulers.base import StoppingSpec
from tuner.schedulers.build import build_scheduler
from tuner.schedulers.hyperband import HyperBand
from tuner.schedulers.median import Median
from tuner.spec.problem import SearchProblem
from tuner.visualization.audit import audit
from tuner.visualization.text_tables import audit_line

pytestmark = pytest.mark.filterwarnings("error")

STOPPING = [
    pytest.param(Asha(max_t=9, reduction_factor=3), id="asha auto"),
    pytest.param(Asha(max_t=9, reduction_factor=3, grace_period=1), id="asha"),
    pytest.param(Median(max_t=9), id="median"),
]
PAUSING = [
    pytest.param(Asha(max_t=9, reduction_factor=3, grace_period=1, variant="promotion"), id="promotion"),
    pytest.param(Asha(max_t=9, reduction_factor=3, variant="promotion"), id="promotion auto"),
    pytest.param(HyperBand(max_t=9), id="hyperband"),
]


def driver_of(spec: StoppingSpec, audit: float, slots: int = 1, trials: int = 200) -> Driver:
    spec = spec.model_copy(update={"audit": audit})
    generator = random.Random(1)
    configurations = [{"x": generator.random()} for _ in range(trials)]
    problem = SearchProblem(space("x: {uniform: [0, 1]}"), ("max",), trials, spec.max_t, 0)
    return Driver(build_scheduler(spec, problem), by_quality, configurations, slots)


def last_steps(driver: Driver) -> dict[str, int]:
    return {trial_id: trial.step for trial_id, trial in driver.trials.items()}


@pytest.mark.parametrize("spec", STOPPING)
def test_about_the_share_continues_and_the_others_are_treated_as_before(spec: StoppingSpec) -> None:
    plain, audited = driver_of(spec, 0.0), driver_of(spec, 0.2)
    plain.run()
    audited.run()
    before, after = last_steps(plain), last_steps(audited)
    kept = {trial_id for trial_id in before if before[trial_id] != after[trial_id]}
    stopped = [trial_id for trial_id, step in before.items() if step < spec.max_t]
    assert 0.1 < len(kept) / len(stopped) < 0.3
    assert all(after[trial_id] == spec.max_t for trial_id in kept)


@pytest.mark.parametrize("spec", PAUSING)
@pytest.mark.parametrize("slots", [1, 4])
def test_paused_trials_continue_too(spec: StoppingSpec, slots: int) -> None:
    plain, audited = driver_of(spec, 0.0, slots), driver_of(spec, 0.2, slots)
    plain.run()
    audited.run()
    complete = sum(step == spec.max_t for step in last_steps(plain).values())
    more = sum(step == spec.max_t for step in last_steps(audited).values()) - complete
    assert 0.1 < more / (200 - complete) < 0.3
    assert len(of(audited.events, "stop", "drop", "close", "return")) == 200


def test_a_trial_without_an_end_runs_until_it_returns() -> None:
    spec = Asha(max_t=9, reduction_factor=3, grace_period=1, stop_last_trials=False)
    driver = driver_of(spec, 0.5, trials=40)
    driver.last = 12
    driver.run()
    assert {step for step in last_steps(driver).values() if step >= 9} == {12}


def test_no_audit_is_no_wrapper() -> None:
    assert not isinstance(driver_of(Asha(max_t=9), 0.0).scheduler, Audited)


@pytest.mark.parametrize("spec", [Asha(max_t=9, grace_period=1, reduction_factor=3), HyperBand(max_t=9)])
def test_the_plan_counts_with_it(spec: StoppingSpec) -> None:
    reach = spec.expected_at_rungs(90)
    with_audit = spec.model_copy(update={"audit": 0.2}).expected_at_rungs(90)
    assert with_audit == pytest.approx([count + 0.2 * (90 - count) for count in reach])


def searched(folder: Path, turns: bool = False, share: float = 0.3, **keys: Any) -> tuner.Run:
    """A search in which the order of trials is the same at every epoch, or ``turns`` after the first rung."""
    search = tuner.Search(
        None,
        {"x": {"uniform": [0, 1]}},
        objective=tuner.maximize("quality"),
        searcher=tuner.searchers.Random(seed=1),
        scheduler=tuner.schedulers.Asha(max_t=9, time_attr="epoch", grace_period=1, reduction_factor=3, audit=share),
        budget=tuner.Budget(trials=80),
        **keys,
    )
    with search.begin(name="q", storage=folder) as loop:
        while (trial := loop.ask()) is not None:
            for epoch in range(1, 10):
                value = 1 - trial.config["x"] if turns and epoch > 1 else trial.config["x"]
                if loop.tell(trial, {"quality": value, "latency": value, "epoch": epoch}) != "continue":
                    break
    return tuner.load(folder / "q")


@pytest.mark.parametrize("turns", [False, True])
def test_the_report_tells_what_stopping_cost(turns: bool, tmp_path: Path) -> None:
    run = searched(tmp_path, turns)
    kept = [trial for trial in run.trials if trial.status == "completed" and trial.rung is not None]
    assert len(kept) > 5
    assert all(trial.reason == f"epoch reached max_t 9; the audit kept it at {trial.rung}" for trial in kept)
    found = audit(run.results)
    assert found is not None
    assert found.to_stop == len(kept) + sum(trial.status == "stopped" for trial in run.trials)
    assert found.audited == len(kept)
    assert found.missed is not None
    assert found.correlation is not None
    line = audit_line(run.results)
    assert line.startswith(f"audit: of {found.to_stop} trials to be stopped {found.audited} ran on, and ")
    assert line in (tmp_path / "q/report.html").read_text()
    if turns:
        assert found.better > 0
        assert found.missed.high > 0
        assert found.correlation.high < -0.99
    else:
        assert (found.better, found.missed.high) == (0, 0.0)
        assert found.correlation.low > 0.99


def test_few_audited_trials_tell_nothing(tmp_path: Path) -> None:
    run = searched(tmp_path, share=0.02)
    assert 0 < sum(trial.status == "completed" and trial.rung is not None for trial in run.trials) < 5
    assert audit_line(run.results).endswith("5 are needed to tell what stopping cost")


def test_outcome_constraints_leave_the_counts(tmp_path: Path) -> None:
    run = searched(tmp_path, outcome_constraints=["latency <= 0.5"])
    found = audit(run.results)
    assert found is not None
    assert found.audited > 5
    assert found.missed is None
    assert audit_line(run.results).endswith("beat all others")


def test_a_search_without_an_audit_has_no_line(tmp_path: Path) -> None:
    run = searched(tmp_path, share=0.0)
    assert audit(run.results) is None
    assert audit_line(run.results) == ""
