"""A trial whose memory grows is noticed; ordinary trainings are not."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

import pytest
import torch

from tuner.execution.consumption_meter import ConsumptionMeter
from tuner.runs.consumption import Consumption
from tuner.runs.trial import Report, Trial
from tuner.search.memory_growth import RISES, WARM_UP, MemoryGrowth


def notices(watch: MemoryGrowth, consumed: Sequence[Consumption], each: int = 1) -> list[tuple[int, str]]:
    """What is told, each with the number of the report, of a trial that reports every ``each`` epochs."""
    trial = Trial("id7", 7, {})
    watch.started(trial.id)
    found = []
    for step, told in enumerate(consumed, start=1):
        report = Report(trial.id, step, float(step), 0.0, {"epoch": each * step}, consumption=told)
        if notice := watch.reported(trial, report):
            found.append((step, notice))
    return found


def on_gpu(*gib: float) -> list[Consumption]:
    return [Consumption(host_gib=2.0, gpu_gib=value) for value in gib]


def test_a_leak_is_named_once_with_its_size_per_epoch() -> None:
    watch = MemoryGrowth("epoch", [])
    leaks = on_gpu(*(3 + 0.8 * step for step in range(20)))
    ((step, notice),) = notices(watch, leaks, each=2)
    assert step == WARM_UP + RISES + 1
    assert notice.startswith(
        "trial #7 (id7): GPU memory grows by 0.4 GiB per epoch (4.6 GiB after its warm-up, 9.4 GiB at report 9): "
    )
    assert "use loss.item()" in notice
    assert notices(watch, leaks) == []
    assert notices(MemoryGrowth("epoch", ["other data", notice]), leaks) == []  # a search that was resumed


def test_a_slow_leak_is_noticed_when_it_has_become_large() -> None:
    ((step, notice),) = notices(MemoryGrowth("", []), [Consumption(host_gib=8 + 0.05 * k) for k in range(40)])
    assert "host memory grows by 51 MiB per epoch" in notice
    assert step == WARM_UP + 1 + 17  # a tenth of 8.1 GiB


def test_without_epochs_it_counts_reports() -> None:
    watch, trial = MemoryGrowth("training_iteration", []), Trial("a", 1, {})
    reports = [Report("a", k, 0.0, 0.0, {"loss": 1.0}, consumption=Consumption(host_gib=1.0 + k)) for k in range(1, 12)]
    assert any("grows by 1 GiB per report" in watch.reported(trial, report) for report in reports)


COURSES: dict[str, Callable[[int], float]] = {
    "flat": lambda k: 4.0,
    "warm-up, then flat": lambda k: min(1.0 + k, 3.0),
    "ever more slowly": lambda k: 4.0 - 2.0 * 0.6**k,
    "sawtooth": lambda k: 4.0 + 0.5 * (k % 5),
    "steps at evaluations": lambda k: 4.0 + 1.0 * (k // 4),
    "a jump": lambda k: 4.0 + 3.0 * (k > 12),
    "small in comparison": lambda k: 40.0 + 0.01 * k,
    "a few MiB": lambda k: 0.1 + 0.001 * k,
    "fast at first, then hardly": lambda k: 4.0 + 0.5 * min(k, 5) + 0.001 * k,
    "falls": lambda k: 9.0 - 0.1 * k,
}


@pytest.mark.parametrize("name", COURSES)
def test_an_ordinary_training_is_not_noticed(name: str) -> None:
    values = [COURSES[name](k) for k in range(60)]
    assert notices(MemoryGrowth("epoch", []), on_gpu(*values)) == []
    assert notices(MemoryGrowth("epoch", []), [Consumption(host_gib=value) for value in values]) == []


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_not_noticed_and_hides_no_leak(seed: int) -> None:
    noise = random.Random(seed)
    flat = on_gpu(*(4 + noise.uniform(-0.5, 0.5) for _ in range(200)))
    assert notices(MemoryGrowth("epoch", []), flat) == []
    leak = on_gpu(*(4 + 0.2 * k + noise.uniform(-0.05, 0.05) for k in range(30)))
    assert len(notices(MemoryGrowth("epoch", []), leak)) == 1


def test_a_process_that_starts_anew_warms_up_anew() -> None:
    def told_at(starts: int) -> list[int]:
        watch, trial = MemoryGrowth("epoch", []), Trial("a", 1, {})
        found = []
        for step in range(1, 41):
            if step % starts == 1:
                watch.started("a")
            report = Report("a", step, 0.0, 0.0, {}, consumption=Consumption(host_gib=1 + 0.3 * step))
            found += [step] if watch.reported(trial, report) else []
        return found

    assert told_at(starts=WARM_UP + RISES) == []
    assert told_at(starts=WARM_UP + RISES + 1) == [WARM_UP + RISES + 1]


def test_what_was_not_measured_is_not_noticed() -> None:
    reports = [Report("a", k, 0.0, 0.0, {}) for k in range(1, 20)]
    assert not any(MemoryGrowth("", []).reported(Trial("a", 1, {}), report) for report in reports)


def train(epochs: int, keeps: bool) -> list[Consumption]:
    """What a training on the CPU consumes, measured: with ``keeps`` a list holds each epoch's tensors."""
    kept, found = [], []
    meter = ConsumptionMeter()
    with meter.running():
        for _ in range(epochs):
            made = torch.ones(32 * 2**18)
            if keeps:
                kept.append(made)
            del made
            found.append(meter.read())
    return found


def test_a_list_that_keeps_tensors_is_a_leak_and_what_is_given_back_is_none() -> None:
    ((_, notice),) = notices(MemoryGrowth("epoch", []), train(12, keeps=True))
    told = re.search(r"host memory grows by (\d+) MiB per epoch", notice)
    assert told
    assert int(told[1]) == pytest.approx(32, abs=4)
    assert notices(MemoryGrowth("epoch", []), train(12, keeps=False)) == []
