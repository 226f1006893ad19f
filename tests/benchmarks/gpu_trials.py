"""Trainables for gpu.py: what goes wrong on a GPU, in earnest, and what a trial leaves behind."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from ray import tune

from tuner.training import keep
from tuner.training.background_saving import BackgroundSaver
from tuner.training.device import fastest_device

_kept: list[torch.Tensor] = []


def needs_memory(config: dict[str, Any]) -> None:
    """Allocates `gib` for each example of a micro-batch; its peak is known to the byte."""
    held = [torch.ones(int(config["gib"] * 2**28), device=fastest_device()) for _ in range(config["micro_batch"])]
    tune.report({"score": float(sum(part[-1] for part in held)), "micro_batch": config["micro_batch"]})


def breaks_beside(config: dict[str, Any]) -> None:
    """Computes for 20 s; after five the trial with x = 1 reads where nothing is, the first time."""
    device = fastest_device()
    values = torch.ones(1024, 1024, device=device)
    table = torch.ones(4, 2, device=device)
    begun = time.perf_counter()
    broken = Path(tempfile.gettempdir(), f"broken-{tune.get_context().get_trial_id()}")
    while (passed := time.perf_counter() - begun) < 20:
        values = values @ values / 1024
        torch.cuda.synchronize()
        if config["x"] == 1 and passed > 5 and not broken.exists():
            broken.touch()
            torch.nn.functional.embedding(torch.tensor([9], device=device), table).sum().item()
    tune.report({"score": float(values.mean())})


def breaks(config: dict[str, Any]) -> None:
    """The trial with x = 1 reads where nothing is."""
    device = fastest_device()
    if config["x"] == 1:
        table = torch.ones(4, 2, device=device)
        print(float(torch.nn.functional.embedding(torch.tensor([9], device=device), table).sum()))
    tune.report({"score": float(torch.ones(8, device=device).sum())})


def leaves_memory(config: dict[str, Any]) -> None:
    """Reports what is allocated at its start; the trial with x = 0 keeps a quarter GiB after its end."""
    before = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
    if config["x"] == 0:
        _kept.append(torch.ones(2**26, device=fastest_device()))
    tune.report({"score": 0.0, "before": before, "process": os.getpid()})


def saves(config: dict[str, Any]) -> None:
    """Four epochs, whose states are saved in the background while the next one changes them; the score is their sum."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4096, 4096).to(fastest_device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with BackgroundSaver() as saver:
        for epoch in range(1, 5):
            optimizer.zero_grad()
            model(torch.ones(8, 4096, device=fastest_device())).square().mean().backward()
            optimizer.step()
            total = float(model.weight.double().sum())
            saver.report({"score": total, "epoch": epoch}, epoch=epoch, model=model, optimizer=optimizer)


def begins(config: dict[str, Any]) -> None:
    """A matrix product on the device; reports the seconds to its result."""
    begun = time.perf_counter()
    ones = torch.ones(64, 64, device=fastest_device())
    score = float((ones @ ones).sum())
    tune.report({"score": score, "seconds_to_first_result": time.perf_counter() - begun, "process": os.getpid()})


def keeps(config: dict[str, Any]) -> None:
    """Keeps 1 GiB on the device, and computes with some of it."""
    made: list[int] = []

    def make() -> torch.Tensor:
        made.append(1)
        return torch.ones(2**28, device=fastest_device())

    some = keep("ones", make)[:4096].view(64, 64)
    tune.report({"score": float((some @ some).sum()), "made": len(made), "process": os.getpid()})


def seen_by_ranks(config: dict[str, Any]) -> None:
    """A mean over the processes of the trial; reports the backend that took it."""
    from torch import distributed as dist

    from tuner.training import distributed

    with distributed.group() as group:
        model = group.model(torch.nn.Linear(4, 1))
        model(torch.ones(2, 4, device=group.device) * (group.rank + 1)).sum().backward()
        mean = group.mean(torch.tensor(float(group.rank), device=group.device))
        if group.is_first:
            tune.report({"score": float(mean), "backend": dist.get_backend(), "device": str(group.device)})
