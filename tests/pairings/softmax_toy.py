"""A real training without torch, which costs each new process three seconds: softmax regression on random features."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray import tune

CLASSES, PIXELS, BATCH = 5, 8, 32
Array = NDArray[np.float64]


def data(split: str) -> tuple[Array, NDArray[np.int64]]:
    """Overlapping clouds of points, and the cloud of each point."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, PIXELS))
    rng = np.random.default_rng(["train", "val", "test"].index(split) + 1)
    labels = rng.integers(CLASSES, size=400)
    return centres[labels] + rng.normal(size=(400, PIXELS)), labels


def features(x: Array, hidden: int) -> Array:
    return np.maximum(x @ np.random.default_rng(9).normal(size=(PIXELS, hidden)), 0)


def probabilities(x: Array, weights: Array) -> Array:
    logits = x @ weights
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def score(weights: Array, split: str) -> dict[str, float]:
    x, labels = data(split)
    found = probabilities(features(x, len(weights)), weights)
    loss = -np.log(found[np.arange(len(labels)), labels] + 1e-12).mean()
    return {f"{split}_accuracy": float((found.argmax(axis=1) == labels).mean()), f"{split}_loss": float(loss)}


def read(folder: Path) -> dict[str, Array]:
    with np.load(folder / "state.npz") as state:
        return dict(state)


def step(state: dict[str, Array], gradient: Array, config: dict[str, Any], count: int) -> None:
    """SGD with momentum, or Adam."""
    if config.get("optimizer", "sgd") == "sgd":
        state["mean"] = config.get("momentum", 0.9) * state["mean"] + gradient
        state["weights"] = state["weights"] - config["lr"] * state["mean"]
        return
    state["mean"] = 0.9 * state["mean"] + 0.1 * gradient
    state["square"] = 0.999 * state["square"] + 0.001 * gradient**2
    mean, square = state["mean"] / (1 - 0.9**count), state["square"] / (1 - 0.999**count)
    state["weights"] = state["weights"] - config["lr"] * mean / (np.sqrt(square) + 1e-8)


def train(config: dict[str, Any]) -> None:
    """One report, with a checkpoint, an epoch: epoch, val_accuracy and val_loss."""
    x, labels = data("train")
    x = features(x, config["hidden"])
    nothing = np.zeros((config["hidden"], CLASSES))
    state, epochs = {"weights": nothing, "mean": nothing, "square": nothing}, 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = read(Path(folder))
            epochs = int(state.pop("epoch"))
    for epoch in range(epochs + 1, config["epochs"] + 1):
        order = np.random.default_rng([epoch, 7]).permutation(len(x))
        for number, batch in enumerate(np.array_split(order, len(x) // BATCH)):
            error = probabilities(x[batch], state["weights"]) - np.eye(CLASSES)[labels[batch]]
            count = (epoch - 1) * (len(x) // BATCH) + number + 1
            step(state, x[batch].T @ error / len(batch), config, count)
        with tempfile.TemporaryDirectory() as folder:
            np.savez(Path(folder, "state.npz"), epoch=np.array(epoch), **state)
            metrics = {"epoch": epoch, **score(state["weights"], "val")}
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


def evaluate(config: dict[str, Any], checkpoint: Path, split: str = "test") -> dict[str, float]:
    return score(read(checkpoint)["weights"], split)
