"""Trainables that keep something between trials."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray import tune

from tuner.training import keep

torch.set_default_dtype(torch.float64)
np.seterr(divide="ignore")
os.environ["SET_AT_IMPORT"] = "yes"
SCALE = np.random.random()
CALLS: list[int] = []


def _report(**metrics: Any) -> None:
    tune.report({"score": 1.0, "pid_": os.getpid(), "module": id(CALLS), **metrics})


def learns(config: dict) -> None:
    """Trains a little on a frozen part that is kept."""
    torch.manual_seed(0)
    made: list[int] = []
    data = keep("data", lambda: made.append(1) or torch.randn(64, 4))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(data[np.random.permutation(64)]) * SCALE).square().mean()
        loss.backward()
        optimizer.step()
    _report(
        loss=loss.item(),
        dtype=str(torch.get_default_dtype()),
        division=np.geterr()["divide"],
        environment=os.environ["SET_AT_IMPORT"],
        made=len(made),
    )


def changes(config: dict) -> None:
    """As `learns`, and leaves something in its module."""
    CALLS.append(1)
    made: list[int] = []
    keep("data", lambda: made.append(1) or torch.randn(64, 4))
    _report(made=len(made), calls=len(CALLS))


def holds_memory(config: dict) -> None:
    """Keeps more memory than a process may have grown by."""
    made: list[int] = []
    keep(config["key"].strip(), lambda: made.append(1) or np.ones(80_000_000))
    _report(made=len(made))


def is_edited(config: dict) -> None:
    """The second trial sees a new version of its file."""
    made: list[int] = []
    keep("data", lambda: made.append(1) or 1)
    _report(made=len(made))
    if config["x"] == 0:
        file = Path(__file__)
        file.write_text(file.read_text().replace("score" + '": 1.0', "score" + '": 2.0'))
