"""A trainable whose trials train as one model; what happens on the way is written into the folder ``log``."""

import json
import os
import signal
import time
from pathlib import Path


def score(config: dict, epoch: int) -> float:
    return config["x"] + epoch / 100


def shape(config: dict) -> int:
    return config.get("width", 1)


def train(config: dict) -> None:
    raise AssertionError("its trials train as one model")


def train_many(configs: list[dict], report, checkpoints: list[Path] | None = None) -> None:
    """Until each has come to its epochs; what goes wrong stands in the configuration."""
    states = [json.loads((folder / "state.json").read_text()) for folder in checkpoints or ()]
    assert [state["x"] for state in states] in ([], [config["x"] for config in configs])
    assert len({state["epoch"] for state in states}) <= 1
    first = states[0]["epoch"] + 1 if states else 0
    log = Path(configs[0]["log"])
    with (log / "groups").open("a") as file:
        print(json.dumps({"process": os.getpid(), "first": first, "x": [config["x"] for config in configs]}), file=file)
    print("a group of", len(configs), flush=True)
    going = list(range(len(configs)))
    for epoch in range(first, max(config.get("epochs", 3) for config in configs)):
        time.sleep(configs[0].get("seconds", 0))
        if any(config.get("wrong") == "raises" for config in configs) and epoch == 1:
            raise ValueError("a wrong number")
        if any(config.get("wrong") == "dies" for config in configs) and epoch == 1 and not (log / "died").exists():
            (log / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        for number in tuple(going):
            config = configs[number]

            def save(folder: str, config: dict = config, epoch: int = epoch) -> None:
                Path(folder, "state.json").write_text(json.dumps({"x": config["x"], "epoch": epoch}))

            if not report(number, {"score": score(config, epoch), "epoch": epoch}, save):
                going.remove(number)
