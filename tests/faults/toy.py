"""A deterministic trainable without torch: what it reports depends on its configuration and its checkpoint alone."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

from ray import tune


def quadratic(config: dict) -> None:
    """-(x - 0.3)**2, approached from below; the state is a number that every epoch changes.

    After epoch ``waits_after``, if that is given, it waits for the file ``gate``.
    """
    step, state = 0, config["x"]
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = json.loads(Path(folder, "state.json").read_text())
            step, state = saved["step"], saved["state"]
    for epoch in range(step + 1, config["epochs"] + 1):
        while epoch > config.get("waits_after", epoch) and not Path(config["gate"]).exists():
            time.sleep(0.05)
        time.sleep(config["seconds"])
        state = (state * 1.7 + 0.1 * epoch) % 1.0
        score = -((config["x"] - 0.3) ** 2) - 1 / epoch + state / 100
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps({"step": epoch, "state": state}))
            Path(folder, "weights.bin").write_bytes(os.urandom(config.get("bytes", 1000)))
            tune.report(
                {"epoch": epoch, "score": score, "state": state}, checkpoint=tune.Checkpoint.from_directory(folder)
            )


def misbehaving(config: dict) -> None:
    """`quadratic`, which does ``how`` once in the search, at epoch ``at`` of the first trial that comes there."""
    report = tune.report

    def hurt(metrics: dict, checkpoint: tune.Checkpoint | None = None) -> None:
        if metrics["epoch"] == config["at"] and not Path(config["flag"]).exists():
            Path(config["flag"]).touch()
            _misbehave(config["how"])
        report(metrics, checkpoint=checkpoint)

    tune.report = hurt
    try:
        quadratic(config)
    finally:
        tune.report = report


def _misbehave(how: str) -> None:
    match how:
        case "raises":
            raise RuntimeError("it went wrong once")
        case "is killed":
            os.kill(os.getpid(), 9)
        case "leaves":
            os._exit(3)
        case "loops for ever":
            while True:
                pass
        case "hogs memory":
            held = []
            while True:
                held.append(os.urandom(50_000_000))
