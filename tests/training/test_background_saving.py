"""Checkpoints that are written while the training continues."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tuner
from tuner.execution.stand_in_session import StandInSession, in_place_of_rays
from tuner.training import background_saving, checkpointing
from tuner.training.background_saving import BackgroundSaver


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what follows from a state on a GPU, all but the copy from there is the same on the CPU."""
    monkeypatch.setattr(background_saving, "is_on_gpu", lambda content: True)


@dataclass
class Session(StandInSession):
    """Takes reports as Ray's does: the caller stands until `let` is set."""

    decides_at: tuple[int, ...] = ()
    stops_at: int = 99
    let: threading.Event = field(default_factory=threading.Event)
    reports: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    """Metrics, and what was in the checkpoint."""

    def report(self, metrics: dict[str, Any], checkpoint: Any = None) -> None:
        self.reports.append((metrics, checkpointing.read(checkpoint.path)))
        assert self.let.wait(30)
        if metrics["epoch"] == self.stops_at:
            raise SystemExit

    def will_decide(self, metrics: dict[str, Any]) -> bool:
        return metrics["epoch"] in self.decides_at


@contextmanager
def session(**options: Any) -> Iterator[Session]:
    found = Session("t", None, "/tmp", **options)
    with in_place_of_rays(found):
        yield found


def parts() -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight  # tied
    return {"model": model, "optimizer": torch.optim.Adam(model.parameters(), 0.1)}


def train(state: dict[str, Any]) -> None:
    state["optimizer"].zero_grad()
    state["model"](torch.ones(2, 3)).square().sum().backward()
    state["optimizer"].step()


def saved_at_once(epochs: int, folder: Path) -> list[dict[str, Any]]:
    state, found = parts(), []
    for epoch in range(1, epochs + 1):
        train(state)
        checkpointing.save(folder, epoch=epoch, metrics={"epoch": epoch}, **state)
        found.append(checkpointing.read(folder))
    return found


def test_the_training_continues_while_its_state_is_saved_as_it_was(tmp_path: Path) -> None:
    expected, state, steps_ahead = saved_at_once(3, tmp_path), parts(), 0
    with session() as found, BackgroundSaver() as saver:
        for epoch in (1, 2, 3):
            train(state)
            if epoch == 2:
                steps_ahead = epoch - len(found.reports)
                found.let.set()  # only now is the first report taken
            saver.report({"epoch": epoch}, epoch=epoch, **state)
    assert steps_ahead >= 1
    assert [metrics for metrics, _ in found.reports] == [{"epoch": epoch} for epoch in (1, 2, 3)]
    for (_, content), one in zip(found.reports, expected, strict=True):
        for name, value in one["model"].items():
            assert torch.equal(content["model"][name], value)
        for name, value in one["optimizer"]["state"]["state"][0].items():
            assert torch.equal(content["optimizer"]["state"]["state"][0][name], value)
        assert content["model"]["0.weight"].data_ptr() == content["model"]["1.weight"].data_ptr()


def test_it_waits_where_the_scheduler_decides() -> None:
    state = parts()
    with session(decides_at=(2,)) as found, BackgroundSaver() as saver:
        found.let.set()
        saver.report({"epoch": 1}, epoch=1, **state)
        found.let.clear()
        threading.Timer(0.3, found.let.set).start()
        began = time.monotonic()
        saver.report({"epoch": 2}, epoch=2, **state)
        assert time.monotonic() - began >= 0.3
        assert len(found.reports) == 2


def saving(epochs: int, error: Exception | None = None) -> int:
    """The epochs that the training came to."""
    state, epoch = parts(), 0
    try:
        with BackgroundSaver() as saver:
            for epoch in range(1, epochs + 1):
                saver.report({"epoch": epoch}, epoch=epoch, **state)
            if error is not None:
                raise error
    except SystemExit:
        pass
    return epoch


def test_a_state_on_the_cpu_is_saved_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    state = parts()
    with session() as found, BackgroundSaver() as saver:
        found.let.set()
        saver.report({"epoch": 1}, epoch=1, **state)
        assert len(found.reports) == 1


def test_a_trial_that_is_stopped_ends_at_the_next_report() -> None:
    with session(stops_at=1) as found:
        found.let.set()
        assert saving(3) == 2
    assert [metrics["epoch"] for metrics, _ in found.reports] == [1]


def test_an_error_of_the_training_comes_after_the_report_before() -> None:
    with session() as found:
        threading.Timer(0.2, found.let.set).start()
        with pytest.raises(ValueError, match="a wrong number"):
            saving(1, ValueError("a wrong number"))
    assert [metrics["epoch"] for metrics, _ in found.reports] == [1]


def test_a_full_disk_is_an_error_of_the_next_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with session(), pytest.raises(OSError, match="No space left"):
        saving(2)


@pytest.mark.pairings
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("variant", ["stopping", "promotion"])
def test_a_scheduler_stops_and_pauses_trials_at_its_rungs(variant: str, tmp_path: Path) -> None:
    asha = {"kind": "asha", "variant": variant, "time_attr": "epoch", "max_t": 8, "grace_period": 2}
    experiment = {
        "trainable": f"{Path(__file__).with_name('saving_toys.py')}:train",
        "search_space": {"x": {"uniform": [0, 1]}},
        "objective": {"metric": "score", "mode": "max"},
        "search": {"kind": "random", "seed": 3},
        "scheduler": asha | {"reduction_factor": 2},
        "budget": {"trials": 6},
        "checkpoints": {"keep_per_trial": 8},
        "resources": {"gpu": 0},
    }
    results = tuner.run(experiment, storage=tmp_path, name="run", say=lambda text: None)
    assert {trial.status for trial in results.trials} == {"completed", "stopped"}
    for trial in results.trials:
        assert trial.steps in (2, 4, 8)
        for report in trial.reports:
            if report.checkpoint:
                content = checkpointing.read(tmp_path / "run" / report.checkpoint)
                assert content["epoch"] == report.metrics["epoch"] == report.step
                assert content["model"]["weight"].item() == pytest.approx(report.metrics["score"])
