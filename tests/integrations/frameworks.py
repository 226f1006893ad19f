"""What the tests know of each framework: its toy, what it reports, and what it can."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class Framework:
    name: str
    metric: str
    mode: str
    score: str
    """What ``evaluate`` of the toy computes."""
    precisions: tuple[str, ...] = ()
    """Values of the toy's `precision`, of which the second changes global state of the framework."""
    accumulates: bool = False
    """Whether the toy has a `micro_batch`."""
    trains_in_groups: bool = False
    random_files: int = 0
    """How many files of a checkpoint of two processes hold random states."""
    saves_always: bool = True
    """Whether each report has a checkpoint."""

    @property
    def file(self) -> Path:
        return Path(__file__).with_name(f"{self.name}_toy.py")

    @property
    def toy(self) -> ModuleType:
        return importlib.import_module(f"tests.integrations.{self.name}_toy")


FRAMEWORKS = [
    Framework("transformers", "eval_loss", "min", "test_accuracy", ("fp32", "bf16"), True, True, 2),
    Framework("trl", "eval_loss", "min", "test_loss", accumulates=True),
    Framework("lightning", "val_loss", "min", "test_accuracy", ("32-true", "bf16-mixed"), True, True, 2),
    Framework("accelerate", "val_loss", "min", "test_accuracy", ("no", "bf16"), True, True, 2),
    Framework("xgboost", "val-logloss", "min", "test_accuracy", trains_in_groups=True),
    Framework("lightgbm", "valid_0-binary_logloss", "min", "test_accuracy", trains_in_groups=True),
    Framework("sklearn", "score", "max", "test_accuracy", saves_always=False),
    Framework("stable_baselines3", "mean_reward", "max", "test_reward"),
]
BY_NAME = {framework.name: framework for framework in FRAMEWORKS}


OF_THE_PROCESS = ("runtime", "per_second", "num_tokens")
"""Ends of the names of metrics that tell what a process has done, and in which time."""


def timeless(metrics: dict[str, object]) -> dict[str, object]:
    """Metrics without those that tell what a process has done, and in which time."""
    return {name: value for name, value in metrics.items() if not name.endswith(OF_THE_PROCESS)}
