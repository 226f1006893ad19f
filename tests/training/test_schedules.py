"""Schedules: their values beside torch's, and what a resume does to them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as peer

from tuner.training import checkpointing
from tuner.training.schedules import Kind, make_schedule

KINDS: list[Any] = list(get_args(Kind))


def optimizer(*rates: float) -> torch.optim.Optimizer:
    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": rate} for rate in rates or (0.2,)]
    return torch.optim.SGD(groups)


def rates(sgd: torch.optim.Optimizer, schedule: Any, count: int) -> list[float]:
    seen = []
    for _ in range(count):
        seen.append(sgd.param_groups[-1]["lr"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schedule.step()
    return seen


# -------------------------------------------------------------------------------------------------------- values


def test_constant() -> None:
    sgd = optimizer()
    assert rates(sgd, make_schedule("constant", sgd, 5), 7) == [0.2] * 7


@pytest.mark.parametrize(("drops", "every"), [(3, 5), (1, 10), (4, 4)])
def test_step_is_torchs(drops: int, every: int) -> None:
    ours, theirs = optimizer(), optimizer()
    schedule = make_schedule("step", ours, 20, gamma=0.3, drops=drops)
    expected = rates(theirs, peer.StepLR(theirs, every, gamma=0.3), 20)
    assert rates(ours, schedule, 20) == pytest.approx(expected)
    assert len(set(expected)) == drops + 1
    assert schedule.factor == pytest.approx(0.3**drops)  # stays


def test_cosine_is_torchs() -> None:
    ours, theirs = optimizer(), optimizer()
    schedule = make_schedule("cosine", ours, 30, final=0.05)
    expected = rates(theirs, peer.CosineAnnealingLR(theirs, 30, eta_min=0.2 * 0.05), 30)
    assert rates(ours, schedule, 30) == pytest.approx(expected)
    assert rates(ours, schedule, 5) == pytest.approx([0.01] * 5)  # torch's would rise again


def test_warm_up_and_cosine_are_torchs() -> None:
    ours, theirs = optimizer(), optimizer()
    schedule = make_schedule("cosine", ours, 25, warmup=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        up = peer.LinearLR(theirs, start_factor=1 / 5, total_iters=4)
        down = peer.CosineAnnealingLR(theirs, 20)
        both = peer.SequentialLR(theirs, [up, down], milestones=[5])
    expected = rates(theirs, both, 25)
    assert rates(ours, schedule, 25) == pytest.approx(expected)
    assert max(expected) == expected[4] == pytest.approx(0.2)


@pytest.mark.parametrize("steps", [2, 3, 4, 10, 101])
@pytest.mark.parametrize("rise", [0.3, 0.5])
def test_one_cycle_is_torchs(steps: int, rise: float) -> None:
    ours, theirs = optimizer(), optimizer()
    schedule = make_schedule("one_cycle", ours, steps, rise=rise)
    try:
        other = peer.OneCycleLR(theirs, 0.2, total_steps=steps, pct_start=rise, cycle_momentum=False)
    except ZeroDivisionError:  # torch divides by a rise of no step
        assert rise * steps == 1
        return
    expected = rates(theirs, other, steps)
    assert rates(ours, schedule, steps) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("mode", ["min", "max"])
def test_plateau_is_torchs(mode: Any) -> None:
    ours, theirs = optimizer(), optimizer()
    schedule = make_schedule("plateau", ours, 100, gamma=0.5, patience=2, mode=mode)
    other = peer.ReduceLROnPlateau(theirs, mode, factor=0.5, patience=2)
    values = [3.0, 2.0, 2.5, 2.5, 2.5, 1.0, 1.0, 1.0, 1.0, float("nan"), 0.5, 4.0, 4.0, 4.0, 4.0]
    seen = []
    for value in values:
        schedule.step()
        schedule.evaluated(value)
        other.step(value)
        seen.append(ours.param_groups[0]["lr"])
        assert seen[-1] == pytest.approx(theirs.param_groups[0]["lr"])
    assert seen[0] == 0.2
    assert seen[-1] < 0.1


@pytest.mark.parametrize("kind", ["constant", "step", "cosine", "plateau"])
def test_all_of_them_warm_up(kind: Any) -> None:
    sgd = optimizer()
    seen = rates(sgd, make_schedule(kind, sgd, 20, warmup=0.2), 5)
    assert seen == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.2])


@pytest.mark.parametrize("kind", KINDS)
def test_each_group_keeps_its_share(kind: Any) -> None:
    sgd = optimizer(0.1, 0.3)
    schedule = make_schedule(kind, sgd, 10)
    for k in range(12):
        first, second = (group["lr"] for group in sgd.param_groups)
        assert second == pytest.approx(3 * first)
        assert 0 <= second <= 0.3 + 1e-12
        schedule.step()
        schedule.evaluated(float(k))


def test_a_learning_rate_in_a_tensor_stays_the_same_tensor() -> None:
    rate = torch.tensor(0.5)
    adam = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=rate, capturable=False)
    schedule = make_schedule("cosine", adam, 2)
    schedule.step()
    assert adam.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.25)


# -------------------------------------------------------------------------------------------------------- resume


class Training:
    """Twelve steps, an evaluation after every third."""

    def __init__(self, kind: Any, lr: float = 0.3, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        options = {"kind": kind, "optimizer": self.optimizer, "steps": 12, **options}
        self.schedule = make_schedule(**options)
        self.rates: list[float] = []

    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}

    def run(self, numbers: Iterator[int] | range) -> None:
        for k in numbers:
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(k))
            loss = (self.model(x) - x.sum(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.rates.append(self.optimizer.param_groups[0]["lr"])
            self.schedule.step()
            if k % 3 == 2:
                self.schedule.evaluated(1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [1, 3, 7, 11])
def test_a_resume_continues_to_the_bit(tmp_path: Path, kind: Any, cut: int) -> None:
    options: dict[str, Any] = {"patience": 1} if kind == "one_cycle" else {"patience": 1, "warmup": 0.2}
    whole = Training(kind, **options)
    whole.run(range(12))
    assert len(set(whole.rates)) > 1
    first = Training(kind, **options)
    first.run(range(cut))
    checkpointing.save(tmp_path, epoch=cut, metrics={}, **first.parts())
    resumed = Training(kind, **options)
    assert checkpointing.restore(tmp_path, **resumed.parts()) == cut
    resumed.run(range(cut, 12))
    assert first.rates + resumed.rates == whole.rates
    assert torch.equal(resumed.model.weight, whole.model.weight)
    if kind == "plateau":
        assert whole.rates[-1] < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_learning_rate_applies_after_a_resume(tmp_path: Path, kind: Any) -> None:
    first = Training(kind, lr=0.3, patience=1)
    first.run(range(7))
    checkpointing.save(tmp_path, epoch=7, metrics={}, **first.parts())
    changed = Training(kind, lr=0.03, patience=1)
    checkpointing.restore(tmp_path, **changed.parts())
    assert changed.optimizer.param_groups[0]["lr"] == pytest.approx(first.optimizer.param_groups[0]["lr"] / 10)
    changed.run(range(7, 12))
    first.run(range(7, 12))
    assert changed.rates == pytest.approx([rate / 10 for rate in first.rates[7:]])


def test_a_longer_training_has_the_longer_schedule_after_a_resume() -> None:
    first = Training("cosine")
    first.run(range(6))
    longer = Training("cosine", steps=24)
    longer.schedule.load_state_dict(first.schedule.state_dict())
    assert longer.schedule.factor == pytest.approx((1 + math.cos(math.pi / 4)) / 2)


# ----------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "linear"}, "schedule: 'linear'; allowed: constant, step, cosine, one_cycle, plateau"),
        ({"steps": 0}, "steps: 0"),
        ({"warmup": 1.0}, "warmup: 1.0"),
        ({"warmup": -0.1}, "warmup: -0.1"),
        ({"warmup": float("nan")}, "warmup: nan"),
        ({"final": 2.0}, "final: 2.0"),
        ({"gamma": 1.0}, "gamma: 1.0"),
        ({"drops": 0}, "drops: 0"),
        ({"rise": 0.0}, "rise: 0.0"),
        ({"patience": -1}, "patience: -1"),
        ({"mode": "up"}, "mode: 'up'"),
        ({"kind": "one_cycle", "warmup": 0.1}, "has a rise of its own"),
    ],
)
def test_bad_input_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_schedule(**{"kind": "cosine", "optimizer": optimizer(), "steps": 10, **changed})
