"""What users of Ray Tune have: classes, wrapped functions, functions written for Ray of 2022 to 2025."""

from __future__ import annotations

import functools
import json
import os
import time
from pathlib import Path

import ray.train
from ray import tune
from ray.air import session


class AddsUp(tune.Trainable):
    """The score is the sum of x over all steps; the state is a dict."""

    def setup(self, config):
        self.total, self.told = 0.0, []

    def step(self):
        time.sleep(self.config.get("seconds", 0))
        self.total += self.config["x"]
        return {
            "score": self.total,
            "iteration": self.iteration,
            "done": self.iteration + 1 >= self.config.get("steps", 3),
        }

    def save_checkpoint(self, checkpoint_dir):
        return {"total": self.total}

    def load_checkpoint(self, checkpoint):
        self.total = checkpoint["total"]

    def cleanup(self):
        with open(Path(self.config["log"], f"cleaned-{self.trial_id}-{os.getpid()}"), "a") as file:
            file.write("x")


class InFolder(AddsUp):
    """The same; the state is a file."""

    def save_checkpoint(self, checkpoint_dir):
        Path(checkpoint_dir, "total.json").write_text(json.dumps(self.total))

    def load_checkpoint(self, checkpoint_dir):
        self.total = json.loads(Path(checkpoint_dir, "total.json").read_text())


class Endless(AddsUp):
    """Never says that it is done."""

    def step(self):
        self.total += self.config["x"]
        return {"score": self.total, "iteration": self.iteration}


class FailsOnce(AddsUp):
    """Fails at its third step, in the first attempt."""

    def step(self):
        mark = Path(self.config["log"], "failed")
        if self.iteration == 2 and not mark.exists():
            mark.touch()
            raise RuntimeError("at step three")
        return super().step()


class WithData(tune.Trainable):
    def setup(self, config, data=None):
        self.data = data

    def step(self):
        return {"score": sum(self.data) * self.config["x"], "done": True}


class BreaksAtCleanup(AddsUp):
    def cleanup(self):
        raise RuntimeError("in cleanup")


with_data = tune.with_parameters(WithData, data=[1, 2, 3])


def scaled(config, data=None, offset=0.0):
    tune.report({"score": config["x"] * sum(data) + offset})


function_with_data = tune.with_parameters(scaled, data=[1, 2, 3])
partly = functools.partial(scaled, data=[10], offset=1.0)
asks_for_more = tune.with_resources(tune.with_parameters(scaled, data=[1]), {"cpu": 2})


class Callable:
    def __call__(self, config):
        tune.report({"score": config["x"]})


instance = Callable()


def train_report(config):
    start = 0
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            start = json.loads(Path(folder, "state.json").read_text())
    for epoch in range(start + 1, 4):
        folder = Path(ray.train.get_context().get_trial_dir(), "mine")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "state.json").write_text(json.dumps(epoch))
        ray.train.report(
            {"score": config["x"] * epoch, "epoch": epoch}, checkpoint=ray.train.Checkpoint.from_directory(str(folder))
        )


def session_report(config):
    session.report({"score": config["x"]})


def keywords(config):
    for epoch in (1, 2):
        tune.report(score=config["x"] * epoch, epoch=epoch)


def checkpoint_dir_of_ray_1(config, checkpoint_dir=None):
    start, total = 0, 0.0
    if checkpoint_dir:
        start, total = json.loads(Path(checkpoint_dir, "checkpoint").read_text())
    for epoch in range(start + 1, 5):
        if epoch == 3 and checkpoint_dir is None and config.get("fails"):
            raise RuntimeError("at epoch three")
        total += config["x"]
        with tune.checkpoint_dir(step=epoch) as folder:
            Path(folder, "checkpoint").write_text(json.dumps([epoch, total]))
        tune.report(score=total, epoch=epoch)
