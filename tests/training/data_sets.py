"""Data sets that worker processes can import."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset


class Noisy(Dataset[Any]):
    """Draws from every global generator."""

    def __init__(self, length: int = 24) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        drawn = [torch.rand(()).item(), float(np.random.random()), random.random(), random.gauss(0, 1)]
        return index, torch.tensor(drawn, dtype=torch.float64)


class Batched(Noisy):
    """Makes whole batches, as torch's Subset does."""

    def __getitems__(self, indices: list[int]) -> list[tuple[int, torch.Tensor]]:
        return [self[index] for index in indices]


class Broken(Noisy):
    """Has a sample that cannot be read."""

    def __getitem__(self, index: int) -> Any:
        raise KeyError(f"sample {index}")


class Threads(Noisy):
    """Its samples are the number of threads that torch uses."""

    def __getitem__(self, index: int) -> Any:
        return torch.get_num_threads()
