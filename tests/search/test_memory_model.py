"""Which micro-batch fits: what the peaks of earlier trials tell."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tuner.runs.consumption import Consumption
from tuner.runs.failure import Failure
from tuner.runs.trial import Report, Trial
from tuner.search.memory_model import Attempt, attempts_of, fitting_micro_batch


def needs(config: dict[str, Any], micro_batch: int) -> float:
    """GiB: a context, weights and their moments, and activations."""
    moments = 4 if config["optimizer"] == "adam" else 2
    return 0.6 + moments * 0.002 * config["width"] ** 1.5 + 4e-5 * config["width"] * config["side"] ** 2 * micro_batch


def drawn(rng: random.Random) -> dict[str, Any]:
    return {
        "width": rng.randint(16, 256),
        "side": rng.choice([16, 24, 32]),
        "optimizer": rng.choice(["sgd", "adam"]),
        "lr": 10 ** rng.uniform(-4, -1),
        "nesterov": rng.random() < 0.5,
    }


def test_nothing_is_reduced_while_nothing_ran_out() -> None:
    config = drawn(random.Random(0))
    assert fitting_micro_batch([], config, 64) == 64
    assert fitting_micro_batch([Attempt(config, 64, 1.0)], config, 64) == 64
    assert fitting_micro_batch([Attempt(config, 64, None)], config, 64) == 64  # nothing tells how much less is needed


@pytest.mark.parametrize("known", [True, False])
def test_after_some_trials_few_run_out_and_the_micro_batch_is_seldom_too_small(known: bool) -> None:
    capacity, rng = 60.0, random.Random(1)
    attempts: list[Attempt] = []
    ran_out, ratios = 0, []
    for number in range(200):
        config = drawn(rng)
        size = fitting_micro_batch(attempts, config, 256, capacity if known else None)
        while needs(config, size) > capacity:
            ran_out += number >= 20
            attempts.append(Attempt(config, size, None))
            size //= 2
        attempts.append(Attempt(config, size, needs(config, size)))
        best = max(256 // 2**n for n in range(9) if needs(config, 256 // 2**n) <= capacity)
        ratios.append(size / best)
    assert sum(needs(drawn(rng), 256) > capacity for _ in range(200)) > 40
    assert ran_out <= 3
    assert sum(ratio >= 0.5 for ratio in ratios) > 170


def test_a_parameter_that_some_lack_and_values_of_several_kinds_are_no_problem() -> None:
    attempts = [
        Attempt({"a": 1, "b": "x"}, 8, 1.0),
        Attempt({"a": "one"}, 64, None),
        Attempt({"b": None, "c": -1.5}, 16, 2.0),
        Attempt({"c": 3}, 32, 4.0),
    ]
    assert 8 <= fitting_micro_batch(attempts, {"a": 2, "c": 0, "d": 1}, 64) <= 32


def test_values_that_are_no_sizes_are_no_problem() -> None:
    odd = [float("inf"), float("nan"), 10**400, -5, 0, True, None, [1, 2], {}, "x", 1e-300]
    attempts = [Attempt({"clip": value, "n": n}, 2**n, 1.0 + n) for n, value in enumerate(odd)]
    attempts += [Attempt({"clip": 1.0}, 0, None), Attempt({"clip": 1.0}, 4096, None), Attempt({}, 8, float("nan"))]
    for value in odd:
        assert 1 <= fitting_micro_batch(attempts, {"clip": value, "m": value}, 64) <= 64
    assert fitting_micro_batch(attempts, {}, 0) == 0


def test_what_a_trial_tells() -> None:
    report = Report("t", 1, 1.0, 0.0, {}, consumption=Consumption(peak_gpu_gib=3.0, peak_host_gib=1.5))
    halved = [Failure("GPU memory", "m", 0, 32), Failure("GPU memory", "m", 0, 16)]
    trial = Trial("t", 1, {"net": {"width": 2}}, reports=[report], failures=halved, micro_batch=16)
    config = {"net.width": 2}
    assert attempts_of(trial, 64, "GPU memory") == [
        Attempt(config, 64, None),
        Attempt(config, 32, None),
        Attempt(config, 16, 3.0),
    ]
    assert attempts_of(trial, 64, "host memory") == [Attempt(config, 16, 1.5)]
    trial.failures = [Failure("GPU memory", "m", 2, 16)]  # the peak is that of the attempt that ran out
    assert attempts_of(trial, 64, "GPU memory") == [Attempt(config, 32, None)]
