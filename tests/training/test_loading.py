"""The loader: the same batches with any number of workers, which end with it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DistributedSampler, IterableDataset, Subset, TensorDataset, WeightedRandomSampler

from tests.training.data_sets import Batched, Broken, Noisy, Threads
from tuner.training import loading, worker_count
from tuner.training.loading import loader

REPOSITORY = Path(__file__).parents[2]


def content(batches: Any) -> list[tuple[list[int], list[list[float]]]]:
    return [(indices.tolist(), drawn.tolist()) for indices, drawn in batches]


def flat(batches: Any) -> list[int]:
    return [index for indices, _ in content(batches) for index in indices]


_before: set[int] = set()


@pytest.fixture(autouse=True)
def _other_tests_have_processes_too() -> None:
    """Such as a browser, which all tests of this process share."""
    _before.clear()
    _before.update(workers_alive())


def workers_alive() -> list[int]:
    """Descendants of this process since the test began, except Python's two servers, which end with it."""
    servers = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
    alive: list[int] = []
    for process in psutil.Process().children():
        with_server = any(server in " ".join(process.cmdline()) for server in servers)
        alive += [child.pid for child in process.children(recursive=True)] if with_server else [process.pid]
    return [pid for pid in alive if pid not in _before]


# -------------------------------------------------------------------------------------- order, random numbers


@pytest.mark.parametrize("kind", [Noisy, Batched])
def test_batches_are_equal_to_the_bit_for_any_number_of_workers(kind: type[Noisy]) -> None:
    epochs = []
    for workers in (0, 1, 2):
        with loader(kind(), 5, cpus=2, num_workers=workers, seed=7) as batches:
            epochs.append([content(batches), content(batches)])
    assert epochs[0] == epochs[1] == epochs[2]
    first, second = epochs[0]
    assert [len(indices) for indices, _ in first] == [5, 5, 5, 5, 4]
    assert sorted(i for indices, _ in first for i in indices) == list(range(24))
    numbers = [n for epoch in (first, second) for _, drawn in epoch for row in drawn for n in row]
    assert len(set(numbers)) == len(numbers)  # no two samples, and no two epochs, draw the same


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_epoch_is_the_one_of_an_uninterrupted_training(workers: int) -> None:
    with loader(Noisy(), 4, cpus=2, num_workers=workers) as batches:
        whole = [content(batches) for _ in range(3)]
    assert whole[0] != whole[1] != whole[2]
    with loader(Noisy(), 4, cpus=2, num_workers=workers) as batches:
        batches.set_epoch(3)
        next(iter(batches))  # an epoch that is broken off
        batches.set_epoch(3)
        assert content(batches) == whole[2]
        batches.set_epoch(1)
        assert content(batches) == whole[0]


def test_the_epoch_counts_when_the_iteration_starts() -> None:
    batches = loader(Noisy(), 4, cpus=0, num_workers=0)
    expected = content(batches)
    batches.set_epoch(1)
    iterator = iter(batches)
    batches.set_epoch(9)
    assert content(iterator) == expected


def test_the_seed_changes_order_and_numbers() -> None:
    one, other = (content(loader(Noisy(), 24, cpus=0, num_workers=0, seed=seed)) for seed in (0, 1))
    assert one[0][0] != other[0][0]
    assert not set(map(tuple, one[0][1])) & set(map(tuple, other[0][1]))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_random_numbers_of_the_training_are_left_alone(workers: int) -> None:
    def draw() -> tuple[float, float, float]:
        return torch.rand(()).item(), float(np.random.random()), random.random()

    def seeded() -> None:
        torch.manual_seed(3)
        np.random.seed(3)
        random.seed(3)

    seeded()
    expected = draw()
    seeded()
    with loader(Noisy(), 4, cpus=1, num_workers=workers) as batches:
        list(batches)
    assert draw() == expected


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_is_made_with_one_thread_and_the_training_keeps_its_own(workers: int) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with loader(Threads(), 4, cpus=1, num_workers=workers) as batches:
            assert [n for batch in batches for n in batch.tolist()] == [1] * 24
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_without_shuffle_the_order_is_the_data_sets_and_the_last_batch_can_be_left_out() -> None:
    batches = loader(Noisy(10), 4, cpus=0, num_workers=0, shuffle=False, drop_last=True)
    assert flat(batches) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert len(batches) == 2
    assert len(loader(Noisy(10), 4, cpus=0, num_workers=0)) == 3


def test_a_sampler_that_draws_has_an_order_for_each_epoch() -> None:
    def made() -> Any:
        sampler = WeightedRandomSampler([1.0] * 23 + [100.0], 50, generator=torch.Generator())
        return loader(Noisy(), 7, cpus=0, num_workers=0, sampler=sampler)

    whole = made()
    assert len(whole) == 8
    first, second = content(whole), content(whole)
    assert [i for indices, _ in first for i in indices] != [i for indices, _ in second for i in indices]
    repeated = [tuple(row) for indices, rows in first for i, row in zip(indices, rows, strict=True) if i == 23]
    assert len(repeated) > 5
    assert len(set(repeated)) == len(repeated)  # a sample that is drawn again is augmented anew
    resumed = made()
    resumed.set_epoch(2)
    assert content(resumed) == second


def test_a_sampler_hears_of_the_epoch() -> None:
    sampler: Any = DistributedSampler(Noisy(), num_replicas=2, rank=0, seed=1)
    batches = loader(Noisy(), 6, cpus=0, num_workers=0, sampler=sampler)
    batches.set_epoch(5)
    got = flat(batches)
    sampler.set_epoch(5)
    assert got == list(sampler)


def test_a_subset_draws_the_same_numbers_with_workers() -> None:
    part = Subset(Noisy(), range(10))
    with loader(part, 4, cpus=1, num_workers=1) as batches:
        assert content(batches) == content(loader(part, 4, cpus=0, num_workers=0))


# ---------------------------------------------------------------------------------------------- worker processes


def test_workers_end_with_close_even_if_something_holds_the_iterator() -> None:
    batches = loader(Noisy(), 2, cpus=2, num_workers=2)
    held = iter(batches)
    next(held)
    assert len(workers_alive()) == 2
    batches.close()
    assert workers_alive() == []
    batches.set_epoch(1)
    assert len(content(batches)) == 12  # closed is not broken
    batches.close()
    assert workers_alive() == []


def test_workers_end_with_a_loader_that_nothing_refers_to() -> None:
    batches = loader(Noisy(), 2, cpus=2, num_workers=2)
    held = iter(batches)
    next(held)
    assert len(workers_alive()) == 2
    del batches
    assert workers_alive() == []


def test_workers_end_if_the_training_fails() -> None:
    def train() -> None:
        with loader(Noisy(), 2, cpus=1, num_workers=1) as batches:
            for _ in batches:
                assert len(workers_alive()) == 1
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        train()
    assert workers_alive() == []
    assert raised.traceback  # it holds the frame, with the iterator


TRIAL = """
import sys, threading, time
from tests.training.data_sets import Noisy
from tuner.training.loading import loader

def train():
    batches = loader(Noisy(), 2, cpus=2, num_workers=2)
    held = iter(batches)
    next(held)
    print("training", flush=True)
    sys.stdin.read()

thread = threading.Thread(target=train, daemon=True)
thread.start()
thread.join()
"""


@pytest.mark.processes
@pytest.mark.parametrize("killed", [False, True])
def test_workers_end_with_the_process_of_the_trial(killed: bool) -> None:
    command, pipe = [sys.executable, "-c", TRIAL], subprocess.PIPE
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, text=True) as trial:
        assert trial.stdin is not None
        assert trial.stdout is not None
        assert trial.stdout.readline() == "training\n"
        family = psutil.Process(trial.pid).children(recursive=True)
        assert len(family) == 4  # two servers and two workers
        if killed:
            trial.kill()
        else:
            trial.stdin.close()
        assert trial.wait(timeout=30) == (-signal.SIGKILL if killed else 0)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(map(running, family)):
        time.sleep(0.1)
    assert not any(map(running, family))


def running(process: psutil.Process) -> bool:
    """Whether it runs; a zombie, which a container's first process may not collect, does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_workers_start_from_another_thread() -> None:
    got: list[Any] = []

    def train() -> None:
        with loader(Noisy(), 4, cpus=1, num_workers=1) as batches:
            got.extend(content(batches))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join(60)
    assert got == content(loader(Noisy(), 4, cpus=0, num_workers=0))


# ---------------------------------------------------------------------------------------------------- measurement


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[int, float], list[int]]:
    """Rates to return instead of measured ones, and which were asked for."""
    table: dict[int, float] = {}
    asked: list[int] = []

    def rate(batches: Any, workers: int, warm: int) -> float:
        asked.append(workers)
        return table[workers]

    monkeypatch.setattr(loading, "batches_per_second", rate)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    return table, asked


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [(1, [0, 1]), (1.9, [0, 1]), (3, [0, 1, 2, 3]), (4, [0, 1, 2, 4]), (6, [0, 1, 2, 4, 6]), (8, [0, 1, 2, 4, 8])],
)
def test_it_tries_no_more_workers_than_cpus(tmp_path: Path, rates: Any, cpus: float, expected: list[int]) -> None:
    table, asked = rates
    table.update({n: 10.0 + n for n in range(9)})
    chosen = loader(Noisy(), 4, cpus=cpus, cache_dir=tmp_path).num_workers
    assert chosen == expected[-1]
    assert asked == [*expected, 0]


def test_it_takes_the_fastest_and_of_nearly_equal_ones_the_fewest(tmp_path: Path, rates: Any) -> None:
    table, _ = rates
    table.update({0: 10.0, 1: 8.0, 2: 19.5, 4: 20.0})
    assert loader(Noisy(), 4, cpus=4, cache_dir=tmp_path).num_workers == 2


def test_it_says_in_one_line_what_it_found_and_remembers_it(
    tmp_path: Path, rates: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    table, asked = rates
    table.update({0: 10.0, 1: 8.0, 2: 25.0})
    assert loader(Noisy(), 4, cpus=2, cache_dir=tmp_path / "new").num_workers == 2
    said = capsys.readouterr().out
    assert said == "loader: 2 workers for Noisy, batch 4 (samples a second: 0: 40, 1: 32, 2: 100)\n"
    assert len(asked) == 4
    table[0] = 99.0
    assert loader(Noisy(), 4, cpus=2.5, cache_dir=tmp_path / "new").num_workers == 2
    assert len(asked) == 4
    said = capsys.readouterr().out
    assert said.startswith("loader: 2 workers for Noisy, batch 4, as measured before (")
    assert said.count("\n") == 1
    (file,) = (tmp_path / "new").glob("*.json")
    assert json.loads(file.read_text())["samples_per_second"] == {"0": 40.0, "1": 32.0, "2": 100.0}


@pytest.mark.parametrize(
    "other",
    [{"batch_size": 5}, {"dataset": Noisy(25)}, {"dataset": Batched()}, {"cpus": 3}, {"name": "large"}],
)
def test_another_data_set_batch_or_number_of_cpus_is_measured_again(
    tmp_path: Path, rates: Any, other: dict[str, Any]
) -> None:
    table, asked = rates
    table.update({n: 1.0 + n for n in range(4)})
    options: dict[str, Any] = {"dataset": Noisy(), "batch_size": 4, "cpus": 2, "cache_dir": tmp_path}
    loader(**options)
    before = len(asked)
    loader(**options)
    assert len(asked) == before
    loader(**{**options, **other})
    assert len(asked) > before


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", '{"num_workers": 2}', '{"key": {}, "num_workers": 2}'],
)
def test_a_damaged_file_is_measured_again(tmp_path: Path, rates: Any, damage: str) -> None:
    table, asked = rates
    table.update({n: 1.0 + n for n in range(3)})
    loader(Noisy(), 4, cpus=2, cache_dir=tmp_path)
    (file,) = tmp_path.glob("*.json")
    file.write_text(damage)
    before = len(asked)
    assert loader(Noisy(), 4, cpus=2, cache_dir=tmp_path).num_workers == 2
    assert len(asked) > before
    assert json.loads(file.read_text())["num_workers"] == 2


def test_a_remembered_number_beyond_the_cpus_does_not_count(tmp_path: Path, rates: Any) -> None:
    table, _ = rates
    table.update({n: 1.0 + n for n in range(3)})
    loader(Noisy(), 4, cpus=2, cache_dir=tmp_path)
    (file,) = tmp_path.glob("*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "num_workers": 3}))
    assert loader(Noisy(), 4, cpus=2, cache_dir=tmp_path).num_workers == 2


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path, rates: Any) -> None:
    table, _ = rates
    table.update({0: 1.0, 1: 2.0})
    (tmp_path / "file").touch()
    assert loader(Noisy(), 4, cpus=1, cache_dir=tmp_path / "file").num_workers == 1


def test_trials_that_start_together_measure_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def slow(batches: Any, workers: int, warm: int) -> float:
        asked.append(workers)
        time.sleep(0.1)
        return 1.0 + workers

    monkeypatch.setattr(loading, "batches_per_second", slow)
    chosen: list[int] = []
    make = lambda: chosen.append(loader(Noisy(), 4, cpus=1, cache_dir=tmp_path).num_workers)  # noqa: E731
    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert chosen == [1] * 4
    assert asked == [0, 1, 0]


def test_the_default_folder_is_in_the_folder_of_data(
    tmp_path: Path, rates: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = rates
    table.update({0: 1.0, 1: 2.0})
    monkeypatch.setenv("TUNER_DATA", str(tmp_path))
    loader(Noisy(), 4, cpus=1)
    assert len(list((tmp_path / "loading").glob("*.json"))) == 1


def test_a_data_set_that_workers_cannot_get_is_loaded_without_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Local(Noisy):
        pass

    batches = loader(Local(), 4, cpus=1, cache_dir=tmp_path)
    assert batches.num_workers == 0
    assert "1 failed: " in capsys.readouterr().out
    assert content(batches) == content(loader(Noisy(), 4, cpus=0, num_workers=0))


def test_an_error_of_the_data_set_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="sample"):
        loader(Broken(), 4, cpus=1, cache_dir=tmp_path)
    assert list(tmp_path.glob("*.json")) == []


def test_a_real_measurement_takes_seconds_and_leaves_no_process_and_no_number_drawn(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(())
    torch.manual_seed(5)
    batches = loader(Noisy(), 4, cpus=2, cache_dir=tmp_path)
    assert torch.equal(torch.rand(()), expected)
    assert workers_alive() == []
    (file,) = tmp_path.glob("*.json")
    assert all(rate > 0 for rate in json.loads(file.read_text())["samples_per_second"].values())
    fixed = content(loader(Noisy(), 4, cpus=0, num_workers=0))
    with batches:
        assert content(batches) == fixed


def test_the_steady_rate_does_not_contain_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0

    def batches() -> Iterator[int]:
        nonlocal clock
        for k in range(1000):
            clock += 60.0 if k == 0 else 0.1
            yield k

    monkeypatch.setattr(worker_count.time, "perf_counter", lambda: clock)  # type: ignore[attr-defined]
    stream: Any = batches()
    assert worker_count.batches_per_second(stream, 2, warm=4) == pytest.approx(10.0)


def test_less_than_one_cpu_leaves_no_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert loader(Noisy(), 4, cpus=0.5, cache_dir=tmp_path).num_workers == 0
    assert capsys.readouterr().out.count("\n") == 1


# ------------------------------------------------------------------------------------------------------ bad input


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": 3, "cpus": 2}, "num_workers: 3, but the trial has 2 CPUs"),
        ({"num_workers": 1, "cpus": 0.5}, "num_workers: 1, but the trial has 0.5 CPUs"),
        ({"num_workers": -1}, "num_workers: -1"),
        ({"num_workers": "many"}, "num_workers: 'many'"),
        ({"batch_size": 0}, "batch_size: 0"),
        ({"prefetch_factor": 0}, "prefetch_factor: 0"),
        ({"cpus": -1}, "cpus: -1"),
        ({"cpus": float("nan")}, "cpus: nan"),
        ({"dataset": Noisy(0)}, "Noisy is empty"),
        ({"dataset": Stream()}, "Stream has no length"),
    ],
)
def test_bad_input_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loader(**{"dataset": Noisy(), "batch_size": 4, "cpus": 2, **options})


def test_pinning_follows_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    data = TensorDataset(torch.arange(4))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert loader(data, 2, cpus=0, num_workers=0).pin_memory
    assert not loader(data, 2, cpus=0, num_workers=0, pin_memory=False).pin_memory
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not loader(data, 2, cpus=0, num_workers=0).pin_memory
