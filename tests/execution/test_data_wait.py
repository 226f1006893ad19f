"""For how long a training waits for torch's DataLoader, which torch has no hook for."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from tuner.execution import data_wait

READ_S = 0.02


class Slow(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(READ_S)
        return torch.ones(1)


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        for batch in DataLoader(Slow(), batch_size=5):  # a loader within a loader
            yield from batch


def read(loader: DataLoader[torch.Tensor]) -> float:
    """Trains on ``loader``; the seconds of the whole."""
    begun = time.perf_counter()
    for _ in loader:
        time.sleep(READ_S)
    return time.perf_counter() - begun


def test_reading_counts_and_training_does_not() -> None:
    data_wait.begin()
    whole = read(DataLoader(Slow(), batch_size=2))
    waited = data_wait.seconds()
    assert waited is not None
    assert 10 * READ_S <= waited <= whole - 5 * READ_S
    assert data_wait.seconds() == 0.0  # since the last call


def test_of_processes_that_read_the_wait_counts() -> None:
    data_wait.begin()
    loader = DataLoader(Slow(), batch_size=1, num_workers=1, multiprocessing_context="fork")
    whole = read(loader)
    waited = data_wait.seconds()
    assert waited is not None
    assert 0 < waited <= whole - 10 * READ_S


def test_a_loader_within_a_loader_counts_once() -> None:
    data_wait.begin()
    whole = read(DataLoader(Stream(), batch_size=5))
    waited = data_wait.seconds()
    assert waited is not None
    assert 10 * READ_S <= waited < whole


def test_a_thread_that_fetches_ahead_does_not_count() -> None:
    data_wait.begin()
    thread = threading.Thread(target=read, args=(DataLoader(Slow()),))
    thread.start()
    thread.join()
    assert data_wait.seconds() is None


def test_a_trial_without_a_loader_has_none() -> None:
    data_wait.begin()
    read(DataLoader(Slow(), batch_size=10))
    data_wait.begin()
    assert data_wait.seconds() is None


def test_what_is_wrapped_too_late_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch.utils.data.dataloader")
        data_wait.begin()
    read(DataLoader(Slow(), batch_size=10))
    assert data_wait.seconds() is None
    data_wait.begin()
    read(DataLoader(Slow(), batch_size=10))
    assert data_wait.seconds() is not None
