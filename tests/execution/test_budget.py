"""When a search ends, and when no new trial starts: fake results, no Ray session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runs.test_results import new_run
from tuner.errors import InputError
from tuner.execution.budget import BudgetStopper
from tuner.experiment.reader import load_experiment
from tuner.experiment.spec import Budget
from tuner.schedulers.asha.spec import Asha
from tuner.schedulers.base import SchedulerSpec
from tuner.schedulers.fifo import Fifo
from tuner.schedulers.median import Median
from tuner.search.control import SearchControl
from tuner.search.usage import UsageTracker
from tuner.spec.objective import Objective

ASHA = Asha(time_attr="epoch", max_t=9, grace_period=1, reduction_factor=3)
MAX = (Objective(metric="acc", mode="max"),)


class Run:
    """Trials whose epochs take ten seconds each."""

    def __init__(self, folder: Path, scheduler: SchedulerSpec = ASHA, gpus: float = 0, **budget: Any) -> None:
        self.said: list[str] = []
        self.control = SearchControl(say=self.said.append)
        self.usage = UsageTracker(MAX, scheduler.fidelity[0] if scheduler.fidelity else "training_iteration")
        spec = Budget.model_validate(budget)
        self.stopper = BudgetStopper(spec, scheduler, gpus, new_run(folder), self.usage, self.control)

    def report(self, trial: str, step: int, acc: float = 0.5, **more: Any) -> None:
        metrics = {"acc": acc, "epoch": more.pop("epoch", step)}
        event = {"what": "reported", "trial": trial, "step": step, "seconds": 10.0 * step, "metrics": metrics}
        self.usage.apply(event | more)

    def end(self, trial: str, status: str = "stopped") -> None:
        self.usage.apply({"what": "ended", "trial": trial, "status": status})

    @property
    def reason(self) -> str:
        self.stopper.stop_all()
        return self.control.stop_reason


# --- what is counted ---


def test_epochs_and_seconds_add_up_over_trials(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for step in (1, 2, 3):
        run.report("a", step)
    run.report("b", 1, epoch=4)
    assert (run.usage.epochs, run.usage.seconds, run.usage.seconds_per_epoch) == (7, 40, 40 / 7)
    assert (run.usage.epoch("a"), run.usage.epoch("b"), run.usage.epoch("c")) == (3, 4, 0)


def test_what_a_trial_repeats_is_one_epoch_but_takes_time_again(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for step in (1, 2, 3, 2, 3, 4):
        run.report("a", step)
    assert (run.usage.epochs, run.usage.seconds) == (4, 60)


def test_epochs_that_came_with_another_trials_checkpoint_are_not_counted(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for step in range(1, 7):
        run.report("donor", step)
    run.report("a", 1)
    run.report("a", 2, segment={"after": 2, "config": {}, "donor": "donor", "donor_step": 6})
    assert run.usage.epoch("a") == 6
    run.report("a", 3, epoch=7)
    assert run.usage.epochs == 6 + 2 + 1
    assert run.usage.epoch("a") == 7


@pytest.mark.parametrize("known", [0, 3])
def test_a_donor_whose_report_a_damaged_journal_lost_says_nothing_of_epochs(known: int, tmp_path: Path) -> None:
    run = Run(tmp_path)
    for step in range(1, known + 1):
        run.report("donor", step)
    run.report("a", 1)
    run.report("a", 2, segment={"after": 2, "config": {}, "donor": "donor", "donor_step": 6})
    assert run.usage.epoch("a") == 2


def test_reports_count_where_the_scheduler_has_no_epochs(tmp_path: Path) -> None:
    run = Run(tmp_path, Fifo(), epochs=3)
    run.report("a", 1, epoch=100)
    run.report("a", 2, epoch=200)
    assert run.reason == ""
    run.report("b", 1)
    assert run.reason == "budget.epochs 3 is used up"


# --- what ends a search ---


def test_epochs(tmp_path: Path) -> None:
    run = Run(tmp_path, epochs=4)
    for step in (1, 2, 3):
        run.report("a", step)
    assert run.reason == ""
    run.report("b", 1)
    assert run.reason == "budget.epochs 4 is used up"
    assert run.said == ["the search ends: budget.epochs 4 is used up"]
    assert run.stopper.stop_all()
    assert len(run.said) == 1


def test_gpu_hours_and_their_cost(tmp_path: Path) -> None:
    hours = Run(tmp_path / "a", gpus=2, gpu_hours=0.01)  # 36 s of GPUs
    cost = Run(tmp_path / "b", gpus=0.5, cost={"per_gpu_hour": 36, "max": 0.1})  # 10 s of GPUs
    for run in (hours, cost):
        run.report("a", 1)
        assert run.reason == ""
        run.report("b", 1)
    assert hours.reason == "budget.gpu_hours 0.01 is used up"
    assert cost.reason == "budget.cost.max 0.1 is used up (0.00278 GPU hours)"


def test_gpu_hours_count_what_is_held_not_what_is_reported(tmp_path: Path) -> None:
    run = Run(tmp_path, gpus=1, gpu_hours=0.01)  # 36 s
    run.usage.hold(20)  # starts, and attempts that never report
    run.report("a", 1)
    assert run.usage.held == 20  # its 10 s are among them
    run.usage.hold(15)
    assert run.reason == ""
    run.usage.hold(2)
    assert run.reason == "budget.gpu_hours 0.01 is used up"


def test_what_was_held_before_a_resume_is_in_the_journal_or_else_what_was_reported(tmp_path: Path) -> None:
    old, new = Run(tmp_path / "old"), Run(tmp_path / "new")
    old.report("a", 1)
    new.report("a", 1, held=25.5)
    new.usage.apply({"what": "failed attempt", "trial": "a", "held": 40.0})
    assert (old.usage.held, new.usage.held) == (10, 40)
    for run in (old, new):
        before = run.usage.held
        run.usage.hold(12)
        run.report("a", 2)
        assert run.usage.held == before + 12


def test_wall_clock_counts_the_time_before_a_resume(tmp_path: Path) -> None:
    run = Run(tmp_path, wall_clock=60)
    run.control.elapsed_before = 59
    assert run.reason == ""
    run.control.elapsed_before = 60
    assert run.reason == "budget.wall_clock 1m00s is used up"


def test_patience_counts_trials_that_end_without_a_new_best(tmp_path: Path) -> None:
    run = Run(tmp_path, patience=2)
    run.report("a", 1, 0.5)
    run.end("a")
    run.report("b", 1, 0.4)
    run.end("b")
    assert run.reason == ""
    run.report("c", 1, 0.6)  # a new best, by a trial that continues
    run.end("d", "failed")
    run.end("c")
    assert run.reason == ""
    run.report("e", 1, 0.6)  # no better
    run.end("e")
    assert run.reason == "budget.patience 2: as many trials in a row ended without a new best"


def test_patience_with_a_front() -> None:
    usage = UsageTracker((*MAX, Objective(metric="cost", mode="min")))
    reported = [("a", 0.5, 5, 0), ("b", 0.4, 4, 0), ("c", 0.4, 5, 1), ("d", 0.6, 1, 0), ("e", 0.5, 2, 1)]
    for trial, acc, cost, trials_since_improvement in reported:
        metrics = {"acc": acc, "cost": cost}
        usage.apply({"what": "reported", "trial": trial, "step": 1, "seconds": 1.0, "metrics": metrics})
        usage.apply({"what": "ended", "trial": trial, "status": "completed"})
        assert usage.trials_since_improvement == trials_since_improvement, trial


# --- when no new trial starts ---


def test_epochs_that_running_trials_need_to_their_next_rung_are_spoken_for(tmp_path: Path) -> None:
    run = Run(tmp_path, epochs=12)  # rungs 1, 3, 9
    run.report("a", 1)
    run.report("a", 2)
    assert not run.stopper.is_committed(["a", "new"])  # 2 used, 1 + 1 to go
    for step in range(3, 5):
        run.report("a", step)
    assert not run.stopper.is_committed(["a"])  # 4 used, 5 to go
    assert run.stopper.is_committed(["a", "b", "c", "d"])  # and 3 more
    assert run.stopper.is_committed(["a", "b", "c", "d"])
    told = "the running trials will use up the rest: no other starts meanwhile"
    assert run.said == [f"NOTICE: budget.epochs 12: {told}"]
    assert not run.stopper.is_committed(["b"])
    assert run.reason == ""


def test_without_rungs_a_trial_goes_on_to_max_t_or_as_far_as_completed_ones(tmp_path: Path) -> None:
    run = Run(tmp_path / "a", Median(time_attr="epoch", max_t=6), epochs=8)
    run.report("a", 1)
    assert not run.stopper.is_committed(["a"])  # 1 used, 5 to go
    assert run.stopper.is_committed(["a", "b"])
    run = Run(tmp_path / "b", Fifo(), epochs=10)
    run.report("a", 1)
    assert not run.stopper.is_committed(["a", "b"])  # nobody knows
    for step in (2, 3, 4):
        run.report("a", step)
    run.end("a", "completed")
    assert not run.stopper.is_committed(["b"])  # 4 used, 4 to go
    assert run.stopper.is_committed(["b", "c"])


def test_gpu_hours_at_the_pace_so_far(tmp_path: Path) -> None:
    run = Run(tmp_path, gpus=1, gpu_hours=100 / 3600)
    for step in range(1, 5):
        run.report("a", step)
    assert not run.stopper.is_committed(["a"])  # 40 s used, 5 epochs of 10 s to go
    assert run.stopper.is_committed(["a", "b"])


def test_a_new_trial_must_have_the_time_for_its_first_rung(tmp_path: Path) -> None:
    scheduler = Asha(time_attr="epoch", max_t=9, grace_period=3, reduction_factor=3)
    run = Run(tmp_path, scheduler, wall_clock=100)
    run.control.elapsed_before = 75
    assert not run.stopper.is_committed([])  # the pace is not known
    run.report("a", 1)
    assert run.stopper.is_committed(["a"])
    assert run.reason == ""
    assert run.stopper.is_committed([])
    assert run.control.stop_reason == "budget.wall_clock 1m40s: too little is left for another trial"
    assert run.stopper.stop_all()


# --- input ---

GIVEN: dict[str, Any] = {
    "trainable": "trainables.digits:train",
    "search_space": {"lr": {"uniform": [0, 1]}},
    "objective": {"metric": "val_accuracy", "mode": "max"},
}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("budget.epochs", 0, ["greater than or equal to 1", "0"]),
        ("budget.epochs", 1.5, ["integer"]),
        ("budget.patience", 0, ["greater than or equal to 1"]),
        ("budget.cost", {"max": 5}, ["budget.cost.per_gpu_hour"]),
        ("budget.cost", {"per_gpu_hour": 0, "max": 5}, ["budget.cost.per_gpu_hour", "greater than 0"]),
        ("budget.cost", {"per_gpu_hour": 2, "max": float("inf")}, ["budget.cost.max", "finite"]),
        ("budget.cost", 5, ["budget.cost"]),
        ("checkpoints.every", 0, ["checkpoints.every", "greater than or equal to 1"]),
        ("checkpoints.max_gib", 0, ["checkpoints.max_gib", "greater than 0"]),
        ("checkpoints.min_free_gib", -1, ["checkpoints.min_free_gib", "greater than or equal to 0"]),
    ],
)
def test_bad_values_are_one_clear_line_each(key: str, value: object, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        load_experiment(GIVEN, {key: value})
    assert "\n" not in str(caught.value)
    assert key.split(".")[1] in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)
