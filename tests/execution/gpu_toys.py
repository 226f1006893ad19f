"""A trainable on a machine of which one GPU is broken."""

from __future__ import annotations

import os
import time

import ray
from ray import tune

from tuner.training import distributed


def on_gpus(config: dict) -> None:
    """Three epochs; on GPU 0 it fails after the first."""
    (gpu,) = map(int, ray.get_gpu_ids())
    for epoch in range(1, 4):
        tune.report({"epoch": epoch, "score": float(epoch), "gpu": gpu})
        if gpu == 0:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        time.sleep(config["seconds"])


def seen_by_ranks(config: dict) -> None:
    """For each of the processes of a trial: the GPUs that it sees, that with its local rank as number, and its own."""
    visible = os.environ["CUDA_VISIBLE_DEVICES"]
    (own,) = ray.get_runtime_context().get_accelerator_ids()["GPU"]
    mine = {"visible": visible, "taken": visible.split(",")[int(os.environ["LOCAL_RANK"])], "own": own}
    with distributed.group() as group:
        for rank, seen in enumerate(group.gather(mine)):  # none but in the first
            tune.report({"score": 1.0, "rank": rank, **seen})
