"""A training for `preemption.py`: it sleeps, so that other work on the machine does not change how long it takes."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any


def train(config: dict[str, Any]) -> None:
    """Reports each epoch, and keeps 10 MB at each ``every``-th."""
    from ray import tune

    epoch = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            epoch = json.loads(Path(folder, "state.json").read_text())["epoch"]
    while True:
        time.sleep(config["seconds"])
        epoch += 1
        metrics = {"epoch": epoch, "score": config["x"]}
        if epoch % config["every"]:
            tune.report(metrics)
            continue
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps({"epoch": epoch}))
            Path(folder, "weights.bin").write_bytes(os.urandom(10_000_000))
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))
