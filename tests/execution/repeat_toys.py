"""Trainables that are trained several times as one trial."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
from pathlib import Path

import torch
from ray import tune

from tuner.training import distributed


def noise(config: dict) -> float:
    return random.Random(f"{config['fold']} {config['x']}").gauss(0, 0.05)


def value(config: dict, epoch: int) -> float:
    """It is best in the second of three epochs."""
    return -((config["x"] - 0.3) ** 2) + noise(config) - abs(epoch - 1)


def folds(config: dict) -> None:
    """Three epochs; with `marks` the process dies once, in the second epoch of fold 2."""
    assert tune.get_checkpoint() is None
    for epoch in range(3):
        marks = Path(config.get("marks", "."), "died")
        if "marks" in config and (config["fold"], epoch) == (2, 1) and not marks.exists():
            marks.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if "marks" in config:
            with Path(config["marks"], "log").open("a") as log:
                print(config["fold"], epoch, file=log)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "model.json").write_text(json.dumps({"fold": config["fold"], "epoch": epoch}))
            metrics = {"score": value(config, epoch), "epoch": epoch, "kind": "fold"}
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


def train_many(configs, report, checkpoints=None) -> None:
    """Three epochs of all folds; what goes wrong stands in the configuration."""
    wrong, first = configs[0].get("wrong"), 0
    if checkpoints:
        states = [json.loads((folder / "model.json").read_text()) for folder in checkpoints]
        assert [state["fold"] for state in states] == [config["fold"] for config in configs]
        first = states[0]["epoch"] + 1
    for epoch in range(first, 3):
        if "marks" in configs[0]:
            marks = Path(configs[0]["marks"], "died")
            if epoch == 2 and not marks.exists():
                marks.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        for number, config in enumerate(configs):
            if number and wrong == "leaves one out" and epoch == 1:
                return
            metrics = {"score": value(config, epoch), "epoch": epoch, "kind": "fold"}

            def save(folder: str, state: dict = {"fold": config["fold"], "epoch": epoch}) -> None:  # noqa: B006
                Path(folder, "model.json").write_text(json.dumps(state))

            has_none = wrong == "one checkpoint" and number
            assert report(number + 7 * (wrong == "number"), metrics, None if has_none else save)
            if wrong == "twice":
                report(number, metrics, save)


def evaluate(config: dict, checkpoint: Path, split: str = "test") -> dict[str, float]:
    state = json.loads((checkpoint / "model.json").read_text())
    assert state == {"fold": config["fold"], "epoch": 1}
    return {"score": value(config, 1)}


def together(config: dict) -> None:
    """Adds up the ranks."""
    with distributed.group() as group:
        mean = group.mean(torch.tensor(float(group.rank)))
        if group.is_first:
            tune.report({"score": mean.item() + config["fold"]})


def silent_in_the_second(config: dict) -> None:
    if config["fold"] == 0:
        tune.report({"score": 1.0})


def random_draw(config: dict) -> dict:
    return {"score": random.random()}
