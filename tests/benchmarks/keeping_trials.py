"""Trainables for keeping.py: what a trial of a few seconds needs before it trains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from ray import tune

try:
    from tuner.training import keep
except ImportError:  # a version that has none

    def keep(key: object, make: Any) -> Any:
        """Makes the value each time."""
        return make()


def read(rows: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and labels of a table."""
    frame = pd.read_csv(rows)
    x = torch.tensor(frame.drop(columns="y").to_numpy(np.float32))
    return (x - x.mean(0)) / x.std(0), torch.tensor(frame["y"].to_numpy(np.float32))


def train_on(x: torch.Tensor, y: torch.Tensor, layers: int, lr: float, steps: int, compiled: bool = False) -> None:
    """Trains a network, and reports its loss."""
    torch.manual_seed(0)
    hidden = [part for _ in range(layers) for part in (torch.nn.Linear(64, 64), torch.nn.GELU())]
    model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 64), torch.nn.GELU(), *hidden, torch.nn.Linear(64, 1))
    step = keep("step", lambda: torch.compile(loss_of)) if compiled else loss_of
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for number in range(steps):
        rows = slice(number * 256 % (len(x) - 256), number * 256 % (len(x) - 256) + 256)
        optimizer.zero_grad()
        loss = step(model, x[rows], y[rows])
        loss.backward()
        optimizer.step()
    tune.report({"loss": loss.item()})


def loss_of(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Squared error."""
    return (model(x).squeeze(1) - y).square().mean()


def table(config: dict[str, Any]) -> None:
    """Reads a table, and trains on it."""
    x, y = keep(("table", config["rows"]), lambda: read(config["rows"]))
    train_on(x, y, 0, config["lr"], 1500)


def compiled(config: dict[str, Any]) -> None:
    """Trains with a compiled step."""
    x = torch.randn(10_000, 20, generator=torch.Generator().manual_seed(0))
    train_on(x, x[:, 0] * x[:, 1], 7, config["lr"], 500, compiled=True)
