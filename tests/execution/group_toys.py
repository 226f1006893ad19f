"""Trainables for several processes of which one fails."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import torch
from ray import tune

from tests.execution.toys import report, resumed_step
from tuner.training import distributed


def adds(config: dict) -> None:
    """Adds up the ranks, epoch after epoch; the rank `fails` fails once, before epoch `at`, in the way `how`."""
    with distributed.group() as group:
        begun = group.from_first(resumed_step)
        for epoch in range(begun + 1, 6):
            if group.rank == config["fails"] and epoch == config.get("at", 3):
                fail_once(config["how"], Path(config["marks"]))
            mean = group.mean(torch.tensor(float(group.rank)))
            if group.is_first:
                report({"epoch": epoch, "score": mean.item() + epoch, "begun": begun}, epoch)


def fail_once(how: str, marks: Path) -> None:
    mark = marks / how
    if mark.exists():
        return
    mark.touch()
    if how == "raise":
        raise RuntimeError("a broken rank")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while how == "hang":
        time.sleep(0.01)
    raise ValueError(how)


def late(config: dict) -> None:
    """The rank `fails` does not come to the reduction in which the others wait, for 3 s at most."""
    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group("gloo")  # a process may need long until it is there
    try:
        impatient = torch.distributed.new_group(timeout=timedelta(seconds=3))
        torch.distributed.barrier()
        if rank == config["fails"]:
            somewhere_else()
        torch.distributed.all_reduce(torch.ones(1), group=impatient)
        report({"epoch": 1, "score": 1.0, "begun": 0}, 1)
    finally:
        torch.distributed.destroy_process_group()


def somewhere_else() -> None:
    while True:
        time.sleep(0.01)


def alone(config: dict) -> None:
    """Knows nothing of other processes."""
    while True:
        time.sleep(0.01)
        tune.report({"score": config["x"]})
