"""Trainables with a known optimum, and trainables that misbehave in every way we promise to survive.

Without torch, which costs each new process two seconds: what needs it is in `torch_toys`.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from ray import tune


def report(metrics: dict, step: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "state.json").write_text(json.dumps({"step": step}))
        tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


def resumed_step() -> int:
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        return json.loads(Path(folder, "state.json").read_text())["step"]


def begin(config: dict, epoch: int) -> None:
    """Takes the ``seconds`` of an epoch; those after ``waits_after`` begin when there is a file ``gate``."""
    time.sleep(config.get("seconds", 0))
    while epoch > config.get("waits_after", math.inf) and not Path(config["gate"]).exists():
        time.sleep(0.02)


def quadratic(config: dict) -> None:
    """-(x - 0.3)**2, approached from below over the epochs."""
    for epoch in range(resumed_step() + 1, config.get("epochs", 4) + 1):
        begin(config, epoch)
        report({"epoch": epoch, "score": -((config["x"] - 0.3) ** 2) - 1 / epoch, "pid_": os.getpid()}, epoch)


def rises_and_falls(config: dict) -> None:
    """Best in the middle; the checkpoint of the middle must be the one that is kept."""
    for epoch, score in enumerate([0.1, config["peak"], 0.2], start=1):
        report({"epoch": epoch, "score": score}, epoch)


def without_checkpoint_at_the_best(config: dict) -> None:
    for epoch, score in enumerate([0.5, 0.9, 0.7], start=1):
        if epoch == 2:
            tune.report({"epoch": epoch, "score": score})
        else:
            report({"epoch": epoch, "score": score}, epoch)


def misbehaves(config: dict) -> None:
    how = config["how"]
    print("about to", how)
    if how == "raise":
        raise RuntimeError("a broken\ntrial")
    if how == "exit":
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "silent":
        return
    if how == "another name":
        tune.report({"accuracy": 0.5, "epoch": 1})
    value = {"nan": float("nan"), "inf": float("inf"), "none": None, "text": "high", "bool": True}.get(how, 0.5)
    tune.report({"score": value, "epoch": 1})
    if how == "later nan":
        tune.report({"score": float("nan"), "epoch": 2})


def other_names(config: dict) -> None:
    tune.report({"accuracy": 0.5, "loss": 1.0})


def returns(config: dict) -> dict:
    return {"score": config["x"]}


def yields(config: dict):
    for step in range(3):
        yield {"score": config["x"] + step}


LEAK: list[np.ndarray] = []


def leaks(config: dict) -> None:
    """Leaves something behind that cannot be undone."""
    if config["what"] == "thread":
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    if config["what"] == "memory":
        sys.modules["json"].left_behind = np.ones(100_000_000)  # type: ignore[attr-defined]  # 800 MB held by a library's module
    if config["what"] == "files":
        sys.modules["json"].left_open = [open(__file__) for _ in range(100)]  # type: ignore[attr-defined]  # noqa: SIM115
    if config["what"] == "dies idle":
        threading.Timer(0.05, os._exit, args=(1,)).start()
    tune.report({"score": 1.0, "pid_": os.getpid()})


def reads_relative_path(config: dict) -> None:
    tune.report({"score": float(Path("data.txt").read_text()) * config["x"]})


def without_checkpoints(config: dict) -> None:
    for epoch in range(1, config["epochs"] + 1):
        begin(config, epoch)
        tune.report({"epoch": epoch, "score": config["x"] * epoch})


def adds_up(config: dict) -> None:
    """The score is the sum of x over all epochs: the state that a checkpoint carries from one trial to another."""
    epoch, score = 0, 0.0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = json.loads(Path(folder, "state.json").read_text())
            epoch, score = state["epoch"], state["score"]
    while epoch < config.get("epochs", 12):
        begin(config, epoch + 1)
        epoch, score = epoch + 1, score + config["x"]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps({"epoch": epoch, "score": score}))
            tune.report({"epoch": epoch, "score": score}, checkpoint=tune.Checkpoint.from_directory(folder))


def shaped_by_width(config: dict) -> None:
    """Its checkpoint fits one width only, as weights do."""
    epoch, checkpoint = 0, tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = json.loads(Path(folder, "state.json").read_text())
            epoch = state["epoch"]
            if state["width"] != config["model"]["width"]:
                raise RuntimeError(f"size mismatch: {state['width']} in the checkpoint")
    while epoch < 12:
        epoch += 1
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps({"epoch": epoch, "width": config["model"]["width"]}))
            tune.report({"epoch": epoch, "score": config["x"]}, checkpoint=tune.Checkpoint.from_directory(folder))


def trade_off(config: dict) -> None:
    report({"score": config["x"], "cost": config["x"] ** 2}, 1)


def fails_without_a_file(config: dict) -> None:
    """All but the smallest x need the file ``needs`` from epoch 2 on."""
    for epoch in range(resumed_step() + 1, config["epochs"] + 1):
        if epoch == 2 and config["x"] > 0.1 and not Path(config["needs"]).exists():
            raise FileNotFoundError(config["needs"])
        report({"epoch": epoch, "score": -((config["x"] - 0.3) ** 2)}, epoch)


def counts_its_steps(config: dict) -> None:
    """Notes in ``folder`` how far it has come, before each report; raises after ``raises`` reports.

    A checkpoint comes with every ``each``-th. At report ``done`` it says that it is done, and continues.
    """
    for epoch in range(resumed_step() + 1, config.get("epochs", 16) + 1):
        if epoch > config.get("raises", epoch):
            raise RuntimeError("a broken trial")
        time.sleep(config.get("seconds", 0.01))
        Path(config["folder"], str(config["x"])).write_text(str(epoch))
        metrics = {"epoch": epoch, "info": {"epoch": epoch}, "trained_with": config["x"], "score": config["x"] * epoch}
        if epoch == config.get("done"):
            metrics["done"] = True
        if epoch % config.get("each", epoch + 1):
            tune.report(metrics)
        else:
            report(metrics, epoch)


def later_are_worse(config: dict) -> None:
    """Each trial of a search is worse than all before it, which ``folder`` counts, and has a gate of its own."""
    mine = Path(config["folder"], f"x{config['x']}")
    mine.touch()
    earlier = sorted(Path(config["folder"]).glob("x*"), key=lambda file: file.stat().st_mtime_ns).index(mine)
    for epoch in range(resumed_step() + 1, config["epochs"] + 1):
        begin(config | {"gate": f"{config['gate']}{earlier}"}, epoch)
        report({"epoch": epoch, "score": -earlier + epoch / 100}, epoch)
