"""A trainable that fails in every way we promise to survive. Without torch: each failure costs a new process."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import tempfile
import time
from pathlib import Path

import ray
from ray import tune


def first_time(config: dict) -> bool:
    """Whether this is said for the first time by the trials of a run: a file remembers it over deaths of processes."""
    mark = Path(config["marks"], str(config["how"]))
    if mark.exists():
        return False
    mark.touch()
    return True


def fails(config: dict) -> None:
    """Six epochs, each with a checkpoint that holds the sum so far; fails in the way ``how`` before the fourth."""
    epoch, total = 0, 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            epoch, total = json.loads(Path(folder, "state.json").read_text())
    how = config["how"]
    while epoch < 6:
        epoch, total = epoch + 1, total + epoch + 1
        time.sleep(config.get("seconds", 0))
        if epoch == 4:
            print("before epoch 4", flush=True)
            fail(how, config)
        micro_batch = config.get("micro_batch", 0)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps([epoch, total]))
            metrics = {"epoch": epoch, "score": float(total), "pid_": os.getpid(), "micro": micro_batch}
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


def broken(config: dict) -> None:
    """Raises before its first report, until there is a file ``mended`` in ``marks``."""
    if not Path(config["marks"], "mended").exists():
        raise ValueError(f"x {config['x']} is no good")
    tune.report({"score": config["x"]})


def on_nodes(config: dict) -> None:
    """Three epochs; on a node whose id the file ``sick`` has it fails before the first."""
    node = ray.get_runtime_context().get_node_id()
    if node in Path(config["marks"], "sick").read_text().split():
        raise RuntimeError("the GPU is lost")
    for epoch in range(1, 4):
        time.sleep(config["seconds"])
        tune.report({"epoch": epoch, "score": float(epoch), "node": node})


def fail(how: str, config: dict) -> None:
    always = how.startswith("always ")
    if not always and "memory" not in how and not first_time(config):
        return
    match how.removeprefix("always "):
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "raise":
            raise RuntimeError("a broken\ntrial")
        case "raise something new":
            raise RuntimeError(f"broken at {time.time_ns()}")
        case "unpicklable":
            raise Strange(1, 2)
        case "hang":
            while True:
                time.sleep(0.01)
        case "hang in C":
            ctypes.PyDLL(None).sleep(3600)  # holds Python's lock
        case "host memory":
            raise MemoryError
        case "GPU memory" if (config.get("micro_batch") or 64) > config.get("fits", 16):
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        case "nan":
            tune.report({"epoch": 4, "score": float("nan")})


class Strange(Exception):
    """Cannot be read back from its pickle."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)


def needs_memory(config: dict) -> None:
    """Allocates 8 MiB for each example and each unit of width; more than 400 MiB is more than it can get."""
    micro_batch = config["micro_batch"] or config["batch_size"]
    wanted = int(config["width"] * micro_batch * 8 * 2**20)
    if wanted > 400 * 2**20:
        raise MemoryError
    held = bytearray(wanted)
    tune.report({"score": float(len(held)), "micro": micro_batch})
