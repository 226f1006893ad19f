"""A trainable on a machine of which one GPU is broken."""

from __future__ import annotations

import time

import ray
from ray import tune


def on_gpus(config: dict) -> None:
    """Three epochs; on GPU 0 it fails after the first."""
    (gpu,) = map(int, ray.get_gpu_ids())
    for epoch in range(1, 4):
        tune.report({"epoch": epoch, "score": float(epoch), "gpu": gpu})
        if gpu == 0:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        time.sleep(config["seconds"])
