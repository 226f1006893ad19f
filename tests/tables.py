"""Tables of learning curves by formula, in two families: early ranks that tell the last ones, and that mislead."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd

from tuner.spec.configuration import Configuration, flat
from tuner.spec.document import Document, read_yaml
from tuner.spec.space import Space, read_space

EPOCHS = 27

DOMAINS = {
    "lr": {"loguniform": [1e-4, 1e-1]},
    "optimizer": {
        "kind": {"choice": ["sgd", "adam"]},
        "momentum": {"uniform": [0.5, 1.0], "when": {"optimizer.kind": "sgd"}},
    },
    "width": {"lograndint": [8, 129]},
}


def space(domains: object = None) -> Space:
    """The search space of the tables, or one of other ``domains``."""
    problems: list = []
    found = read_space(Document(DOMAINS if domains is None else domains, "<test>"), (), problems)
    assert found is not None, problems
    return found


def space_believing(point: Configuration) -> Space:
    """The search space of the tables, with priors of high confidence at ``point``."""
    lr, optimizer, width = (DOMAINS[name] for name in ("lr", "optimizer", "width"))
    kind = {**optimizer["kind"], "prior": point["optimizer"]["kind"], "confidence": "high"}
    return space(
        {
            "lr": {**lr, "prior": point["lr"], "confidence": "high"},
            "optimizer": {"kind": kind, "momentum": optimizer["momentum"]},
            "width": {**width, "prior": point["width"], "confidence": "high"},
        }
    )


def space_in(file: Path) -> Space:
    """The search space of a YAML file."""
    return space(read_yaml(file.read_text(), file.name).value)


def at_random(searched: Space, metric: str = "val_accuracy", configurations: int = 5, epochs: int = 3) -> pd.DataFrame:
    """Random configurations of any space, with curves that rise to a random height."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(configurations):
        config, height = dict(flat(searched.sample(rng))), rng.random()
        rows += [
            {**config, "epoch": epoch, metric: height * epoch / epochs, "seconds": float(epoch)}
            for epoch in range(1, epochs + 1)
        ]
    return pd.DataFrame(rows)


def by_formula(
    informative: bool, configurations: int = 200, epochs: int = EPOCHS, seed: int = 0, turn: float = math.log(3) / 4
) -> pd.DataFrame:
    """``val_accuracy`` of random configurations: quality minus a gap that closes over the epochs.

    All gaps are the same where ranks are ``informative``; else the best configurations start with the largest gaps, so
    that ranks are the reverse of the last ones up to the share ``turn`` of the epochs. A wide network takes longer.
    """
    rng = np.random.default_rng(seed)
    searched = space()
    rows = []
    for _ in range(configurations):
        config = searched.sample(rng)
        momentum = config["optimizer"].get("momentum")
        quality = 0.95 - 0.08 * (np.log10(config["lr"]) + 2.5) ** 2 - 0.02 * abs(np.log2(config["width"]) - 5)
        quality -= 0.05 if momentum is None else 0.3 * (momentum - 0.9) ** 2
        gap = 0.3 if informative else math.exp(4 * turn) * (quality - 0.5)
        for epoch in range(1, epochs + 1):
            rows.append(
                {
                    "lr": config["lr"],
                    "optimizer.kind": config["optimizer"]["kind"],
                    "optimizer.momentum": momentum,
                    "width": config["width"],
                    "epoch": epoch,
                    "val_accuracy": quality - gap * np.exp(-4 * epoch / epochs),
                    "seconds": epoch * (5 + config["width"] / 16),
                }
            )
    return pd.DataFrame(rows)


def by_hand(durations: list[list[float]], values: list[list[float]]) -> pd.DataFrame:
    """Configurations x = 0, 1, …: the seconds that each epoch takes, and what it reports."""
    return pd.DataFrame(
        [
            {"x": x, "epoch": epoch, "score": score, "seconds": sum(durations[x][:epoch])}
            for x, scores in enumerate(values)
            for epoch, score in enumerate(scores, start=1)
        ]
    )
