"""Says how many threads its libraries use, and leaves another number behind."""

from __future__ import annotations

import json
import os

import torch
from ray import tune
from threadpoolctl import threadpool_info, threadpool_limits

from tuner.training import distributed


def train(config: dict) -> None:
    with distributed.group() as group:
        seen = {
            "process": os.getpid(),
            "environment": int(os.environ["OMP_NUM_THREADS"]),
            "torch": torch.get_num_threads(),
            "numpy": next(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"),
        }
        of_all = [seen]
        if torch.distributed.is_initialized():
            of_all = [{}] * 2
            torch.distributed.all_gather_object(of_all, seen)
        if group.is_first:
            tune.report({"score": config["n"], "seen": json.dumps(of_all)})
    torch.set_num_threads(3)
    threadpool_limits(3)
    os.environ["OMP_NUM_THREADS"] = "3"
