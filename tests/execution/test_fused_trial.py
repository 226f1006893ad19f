"""Trials that train as one model in a process of their own: real processes, without Ray."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.execution.fused_toys import score
from tuner import load_run, run
from tuner.actions.confirm import confirm
from tuner.actions.replay import replay
from tuner.errors import InputError
from tuner.execution import fused_trial
from tuner.execution.failure_classifier import UserError
from tuner.execution.fused_process import Start
from tuner.execution.fused_trial import FusedTrial, Seat
from tuner.execution.trial_context import TrialContext
from tuner.experiment.reader import load_experiment
from tuner.plan.cluster import this_machine
from tuner.plan.planner import make_plan
from tuner.runs.results import ResultSet

TOYS = Path(__file__).with_name("fused_toys.py")


@dataclass
class Outcome:
    """What one trial reported, and how it ended."""

    reports: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    error: UserError | None = None


@dataclass
class Machine:
    """Trials on seats of one search, each in a thread."""

    folder: Path
    task: TrialContext
    seats: list[Seat] = field(default_factory=list)

    def take_seats(self, count: int) -> None:
        self.seats += [Seat(self.task, str(self.folder)) for _ in range(count)]

    def train(
        self, configs: list[dict[str, Any]], *, last: Callable[[dict[str, Any]], int] = lambda config: 99, **start: Any
    ) -> list[Outcome]:
        """The outcome of each on its seat; the scheduler stops a trial at report ``last``."""
        found = [Outcome() for _ in configs]
        begun = [
            threading.Thread(target=self._train, args=(*pair, last(pair[1]), outcome), kwargs=start)
            for pair, outcome in zip(zip(self.seats, configs, strict=False), found, strict=True)
        ]
        for thread in begun:
            thread.start()
        for thread in begun:
            thread.join(60)
            assert not thread.is_alive()
        return found

    def _train(
        self,
        seat: Seat,
        config: dict[str, Any],
        last: int,
        outcome: Outcome,
        step: int = 0,
        checkpoint: Path | None = None,
        seconds: float = 60.0,
    ) -> None:
        def report(metrics: dict[str, Any], checkpoint: Any) -> None:
            outcome.reports.append(metrics)
            outcome.checkpoints.append(json.loads(Path(checkpoint.path, "state.json").read_text()))
            if len(outcome.reports) == last:
                raise SystemExit  # as Ray ends a function that stands at a report

        start = Start(config | {"log": str(self.folder)}, step, checkpoint)
        end = time.monotonic() + seconds
        try:
            seat.train(FusedTrial(start, report, lambda metrics: True, lambda: time.monotonic() > end))
        except UserError as error:
            outcome.error = error
        except SystemExit:
            pass

    def groups(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "groups").read_text().splitlines()]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Machine]]:
    """Gives one on which so many trials train as one."""
    monkeypatch.setattr(fused_trial, "place", lambda: tmp_path / "place")
    made: list[Machine] = []

    def make(fused: int) -> Machine:
        task = TrialContext(f"{TOYS}:train", (TOYS.parent,), tmp_path, {}, (), 0, 1, {"CPU": 0.25}, 1, fused=fused)
        made.append(Machine(tmp_path, task))
        made[0].take_seats(fused)
        return made[0]

    yield make
    for seat in (seat for one in made for seat in one.seats):
        seat.leave()


def configs(count: int, **keys: Any) -> list[dict[str, Any]]:
    return [{"x": float(x), **keys} for x in range(count)]


def reports(config: dict[str, Any], count: int) -> list[dict[str, Any]]:
    return [{"score": score(config, epoch), "epoch": epoch} for epoch in range(count)]


def test_trials_train_as_one_and_leave_by_themselves(machine: Callable[[int], Machine]) -> None:
    there = machine(4)
    found = there.train(configs(4), last=lambda config: 1 if config["x"] < 2 else 99)
    assert [one.reports for one in found] == [reports(config, 1 if config["x"] < 2 else 3) for config in configs(4)]
    assert found[3].checkpoints == [{"x": 3.0, "epoch": epoch} for epoch in range(3)]
    again = there.train(configs(4))
    assert [len(one.reports) for one in again] == [3] * 4
    groups = there.groups()
    assert [sorted(group["x"]) for group in groups] == [[0, 1, 2, 3]] * 2
    assert len({group["process"] for group in groups}) == 1


@pytest.mark.processes
def test_those_of_one_shape_train_together(machine: Callable[[int], Machine]) -> None:
    there = machine(4)
    mixed = [config | {"width": 1 + int(config["x"]) % 2} for config in configs(4)]
    found = there.train(mixed)
    assert [one.reports for one in found] == [reports(config, 3) for config in mixed]
    assert sorted(sorted(group["x"]) for group in there.groups()) == [[0, 2], [1, 3]]


def test_trials_continue_from_their_checkpoints(machine: Callable[[int], Machine], tmp_path: Path) -> None:
    there = machine(1)
    (tmp_path / "state.json").write_text(json.dumps({"x": 0.0, "epoch": 1}))
    (found,) = there.train(configs(1), step=2, checkpoint=tmp_path)
    assert found.reports == reports(configs(1)[0], 3)[2:]
    assert [group["first"] for group in there.groups()] == [2]


def test_an_error_fails_the_group_and_the_next_one_has_a_new_process(
    machine: Callable[[int], Machine], capfd: Any
) -> None:
    there = machine(2)
    found = there.train(configs(2, wrong="raises"))
    assert {str(one.error) for one in found} == {"('exception', 'ValueError: a wrong number')"}
    assert [one.reports for one in found] == [reports(config, 1) for config in configs(2)]
    assert "a group of 2" in (printed := capfd.readouterr().out)
    assert 'raise ValueError("a wrong number")' in printed
    assert [len(one.reports) for one in there.train(configs(2))] == [3, 3]
    assert len({group["process"] for group in there.groups()}) == 2


@pytest.mark.processes
def test_a_process_that_is_killed_fails_its_group(machine: Callable[[int], Machine]) -> None:
    there = machine(2)
    found = there.train(configs(2, wrong="dies"))
    assert [one.error and one.error.kind for one in found] == ["process died"] * 2
    assert [len(one.reports) for one in there.train(configs(2, wrong="dies"))] == [3, 3]


@pytest.mark.processes
def test_a_group_that_everybody_has_left_ends(
    machine: Callable[[int], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that never comes to a report again."""
    there = machine(2)
    there.train(configs(2, seconds=0.1), last=lambda config: 1)
    (first,) = there.groups()
    (found,) = there.train(configs(1))
    assert len(found.reports) == 3
    assert there.groups()[1]["process"] == first["process"]


@pytest.mark.processes
def test_a_training_that_everybody_has_left_is_not_waited_for(machine: Callable[[int], Machine]) -> None:
    there = machine(2)
    found = there.train(configs(2, seconds=100.0), seconds=4.0)
    assert [one.reports for one in found] == [[], []]
    assert [len(one.reports) for one in there.train(configs(2))] == [3, 3]
    assert len({group["process"] for group in there.groups()}) == 2


@pytest.mark.processes
def test_seats_beyond_those_of_a_process_are_in_another_one(machine: Callable[[int], Machine]) -> None:
    there = machine(4)
    there.take_seats(4)
    found = there.train(configs(8))
    assert [one.reports for one in found] == [reports(config, 3) for config in configs(8)]
    assert [len(group["x"]) for group in there.groups()] == [4, 4]
    assert len({group["process"] for group in there.groups()}) == 2


@pytest.mark.processes
def test_the_seat_of_a_process_that_was_killed_is_free(machine: Callable[[int], Machine], tmp_path: Path) -> None:
    there = machine(1)
    child = os.fork()
    if child == 0:
        there.seats = [Seat(there.task, str(there.folder))]
        there.train([{"x": 9.0, "seconds": 0.5, "epochs": 1000}])
        os._exit(0)
    until((tmp_path / "groups").exists)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    (found,) = there.train(configs(1))
    assert len(found.reports) == 3
    first, second = there.groups()
    assert first["process"] == second["process"]


@pytest.mark.processes
def test_one_that_leaves_before_it_is_greeted_harms_nobody(machine: Callable[[int], Machine], tmp_path: Path) -> None:
    there = machine(1)
    there.train(configs(1))
    there.seats[0].leave()
    (folder,) = (tmp_path / "place").glob("*-0")
    for _ in range(200):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(folder / "socket"))
    for _ in range(5):  # whose seat is free as soon as the process has seen that they left
        (found,) = there.train(configs(1))
        assert len(found.reports) == 3
        there.seats[0].leave()
        first, *_, last = there.groups()
        if first["process"] == last["process"]:
            break
    assert first["process"] == last["process"]


@pytest.mark.processes
def test_the_process_ends_after_its_last_seat(machine: Callable[[int], Machine], tmp_path: Path) -> None:
    there = machine(1)
    there.train(configs(1))
    assert list((tmp_path / "place").glob("*-0"))
    there.seats[0].leave()
    until(lambda: not list((tmp_path / "place").glob("*-0")))


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


EXPERIMENT = {
    "name": "q",
    "trainable": f"{TOYS}:train",
    "search_space": {"x": {"uniform": [0, 1]}},
    "objective": {"metric": "score", "mode": "max"},
    "search": {"kind": "random", "seed": 3},
    "budget": {"trials": 8},
    "resources": {"gpu": 0, "cpu": 2, "fused": 4},
}
ASHA = {"kind": "asha", "time_attr": "epoch", "max_t": 4, "grace_period": 1, "reduction_factor": 2}


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            {"resources": {"fused": 4, "workers": 2}},
            "resources.fused: it is for trials of one process, and workers is 2",
        ),
        ({"resources": {"fused": 4, "gpu": "share"}}, "resources.gpu: share measures trials that train by themselves"),
        ({"resources": {"fused": 4, "gpu": 2}}, "resources.gpu: fused trials train on one GPU, and gpu is 2"),
        (
            {"resources": {"fused": 4, "gpu": 0.5, "mps": True}},
            "resources.mps: it serves trials in processes of their own",
        ),
        ({"repeat": {"over": "fold", "times": 3}}, "resources.fused: is for trials that train once"),
        (
            {"trainable": f"{TOYS.parent}/repeat_toys.py:folds_alone"},
            "resources.fused: needs a function train_many(configs, report, checkpoints) in the module of",
        ),
    ],
)
def test_a_plan_names_what_cannot_be_fused(keys: dict[str, Any], problem: str, tmp_path: Path) -> None:
    if "trainable" in keys:
        (tmp_path / "alone.py").write_text("def train(config):\n    return {'score': config['x']}\n")
        keys = {"trainable": f"{tmp_path}/alone.py:train"}
    with pytest.raises(InputError, match=re.escape(problem)):
        make_plan(load_experiment(EXPERIMENT | keys), this_machine())


def test_each_trial_needs_its_part() -> None:
    assert tuner.Resources(cpu=1, gpu=0.5, memory_gib=3, fused=3).request(has_gpus=True) == pytest.approx(
        {"CPU": 0.3333, "GPU": 0.1666, "memory": 2**30}
    )


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
class TestOnRay:
    @pytest.mark.parametrize("variant", ["stopping", "promotion"])
    def test_a_scheduler_sees_separate_trials(self, variant: str, tmp_path: Path) -> None:
        params = {"log": str(tmp_path), "epochs": 5}
        results = search(tmp_path, params=params, scheduler=ASHA | {"variant": variant}, budget={"trials": 12})
        assert {2, 5} <= {trial.steps for trial in results.trials}  # epochs count from 0, and max_t is 4
        for trial in results.trials:
            assert trial.status in ("completed", "stopped"), trial.reason
            found = [{name: report.metrics[name] for name in ("score", "epoch")} for report in trial.reports]
            assert found == reports(trial.config, trial.steps)
        groups = [json.loads(line) for line in (tmp_path / "groups").read_text().splitlines()]
        assert max(len(group["x"]) for group in groups) > 1
        assert (tmp_path / "run/ray").is_dir()
        assert all("a group of" in log.read_text() for log in tmp_path.glob("run/ray/*/trial.log"))

    def test_trials_continue_after_their_process_was_killed(self, tmp_path: Path) -> None:
        results = search(tmp_path, params={"log": str(tmp_path), "wrong": "dies"}, budget={"trials": 4})
        assert [trial.status for trial in results.trials] == ["completed"] * 4
        failures = [failure.kind for trial in results.trials for failure in trial.failures]
        assert failures
        assert set(failures) == {"process died"}
        for trial in results.trials:
            assert [report.metrics["score"] for report in trial.reports] == [
                one["score"] for one in reports(trial.config, 3)
            ]

    def test_trials_get_what_they_would_get_alone_and_are_confirmed_together(self, tmp_path: Path) -> None:
        digits = {
            "trainable": "trainables.digits:train",
            "params": {"epochs": 2},
            "search_space": {"lr": {"loguniform": [0.05, 0.5]}},
            "objective": {"metric": "val_loss", "mode": "min"},
            "budget": {"trials": 4},
        }
        results = search(tmp_path, **digits)
        found = confirm(results, top=2, seeds=3, say=lambda text: None)
        again = load_run(tmp_path / "run-confirm")
        assert len(again.trials) == 6
        for run_ in (results, again):
            for trial in (run_.trials[0], run_.trials[-1]):
                verdict = replay(run_, trial)
                assert verdict.agrees, verdict.describe()
        assert "to 0.1%: it trained with others as one model" in verdict.describe()[0]
        assert [len(one.best) for one in found.configurations] == [3, 3]


def search(storage: Path, **keys: Any) -> ResultSet:
    return run(EXPERIMENT | keys, storage=storage, name="run", say=lambda text: None)
