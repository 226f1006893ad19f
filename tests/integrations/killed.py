"""The toys of all frameworks, of which a trial may be killed as it reports."""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path
from typing import Any

from ray import tune

_NOT_OF_THE_TOY = ("framework", "marks", "killed")


def train(config: dict[str, Any]) -> None:
    """Trains the toy; with `killed`, kill -9 ends its process once, as it reports epoch 2."""
    if config["killed"]:
        _kill_at(2, Path(config["marks"], config["framework"]))
    toy = importlib.import_module(f"tests.integrations.{config['framework']}_toy")
    toy.train({name: value for name, value in config.items() if name not in _NOT_OF_THE_TOY})


def evaluate(config: dict[str, Any], checkpoint: Path) -> dict[str, float]:
    toy = importlib.import_module(f"tests.integrations.{config['framework']}_toy")
    scores: dict[str, float] = toy.evaluate(config, checkpoint)
    return scores


def load_model(config: dict[str, Any], checkpoint: Path) -> Any:
    return importlib.import_module(f"tests.integrations.{config['framework']}_toy").load_model(config, checkpoint)


def _kill_at(epoch: int, mark: Path) -> None:
    report = tune.report

    def reporting(metrics: dict[str, Any], *, checkpoint: Any = None) -> None:
        if metrics["epoch"] == epoch and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        report(metrics, checkpoint=checkpoint)

    tune.report = reporting
