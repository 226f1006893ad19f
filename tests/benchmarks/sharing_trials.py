"""Trainables for sharing.py: each reports after so many steps that a report takes some tenths of a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


def _steps(model: nn.Module, examples: torch.Tensor, steps: int) -> float:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        loss = model(examples).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss)


def small(config: dict[str, Any]) -> Iterator[dict[str, float]]:
    """Small matrices: a second thread has little to do."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    while True:
        yield {"loss": _steps(model, torch.randn(64, 64), 300)}


def convolutions(config: dict[str, Any]) -> Iterator[dict[str, float]]:
    """Images of 32 x 32, as in `trainables.cifar`."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Conv2d(32, 1, 3))
    while True:
        yield {"loss": _steps(model, torch.randn(64, 3, 32, 32), 3)}


def large(config: dict[str, Any]) -> Iterator[dict[str, float]]:
    """Large matrices, which keep every thread busy."""
    model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
    while True:
        yield {"loss": _steps(model, torch.randn(512, 1024), 3)}


def waits(config: dict[str, Any]) -> Iterator[dict[str, float]]:
    """Half of its time it waits for its data, as from a store elsewhere."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    while True:
        begun = time.perf_counter()
        loss = _steps(model, torch.randn(64, 64), 200)
        time.sleep(time.perf_counter() - begun)
        yield {"loss": loss}
