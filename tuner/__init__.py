"""tuner: hyperparameter search on Ray Tune, from Python or from one YAML file.

import tuner
from ray import tune

def train(config):
    for epoch in range(1, 10):
        ...
        tune.report({"val_accuracy": accuracy}, checkpoint=...)

search = tuner.Search(
    train,
    {"lr": tune.loguniform(1e-4, 1e-1)},
    objective=tuner.maximize("val_accuracy"),
    scheduler=tuner.schedulers.Asha(max_t=9),
)
run = search.run()
print(run.best_value, run.best_config, run.best_checkpoint)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tuner import errors, schedulers, searchers
    from tuner.actions.ask_tell import AskTell, Suggestion
    from tuner.actions.fused_trials import train_fused
    from tuner.actions.resume import extend, resume, retry
    from tuner.actions.run import run, validate
    from tuner.api import Run, Search, SearchPlan, load, maximize, minimize
    from tuner.callback import Callback
    from tuner.experiment.failures import Failures
    from tuner.experiment.notify import Notify
    from tuner.experiment.repeat import Repeat
    from tuner.experiment.resources import Resources
    from tuner.experiment.spec import Budget, Checkpoints, Cost
    from tuner.experiment.tracking import (
        CustomTracking,
        MlflowTracking,
        TensorboardTracking,
        Tracking,
        WandbTracking,
    )
    from tuner.runs.loading import load_run
    from tuner.runs.restore import restore_best
    from tuner.runs.results import ResultSet
    from tuner.runs.trial import Report, Trial
    from tuner.simulator import Table, simulate
    from tuner.spec.objective import Objective
    from tuner.tracking.backends.base import TrackingBackend
    from tuner.trainable.optuna_space import space_from_objective
    from tuner.training.reporting import get_checkpoint, report

__all__ = [
    "AskTell",
    "Budget",
    "Callback",
    "Checkpoints",
    "Cost",
    "CustomTracking",
    "Failures",
    "MlflowTracking",
    "Notify",
    "Objective",
    "Repeat",
    "Report",
    "Resources",
    "ResultSet",
    "Run",
    "Search",
    "SearchPlan",
    "Suggestion",
    "Table",
    "TensorboardTracking",
    "Tracking",
    "TrackingBackend",
    "Trial",
    "WandbTracking",
    "errors",
    "extend",
    "get_checkpoint",
    "load",
    "load_run",
    "maximize",
    "minimize",
    "report",
    "restore_best",
    "resume",
    "retry",
    "run",
    "schedulers",
    "searchers",
    "simulate",
    "space_from_objective",
    "train_fused",
    "validate",
]

_HOMES = {
    "Search": "tuner.api",
    "AskTell": "tuner.actions.ask_tell",
    "Suggestion": "tuner.actions.ask_tell",
    "train_fused": "tuner.actions.fused_trials",
    "SearchPlan": "tuner.api",
    "Run": "tuner.api",
    "load": "tuner.api",
    "maximize": "tuner.api",
    "minimize": "tuner.api",
    "Objective": "tuner.spec.objective",
    "Budget": "tuner.experiment.spec",
    "Cost": "tuner.experiment.spec",
    "Checkpoints": "tuner.experiment.spec",
    "Repeat": "tuner.experiment.repeat",
    "Resources": "tuner.experiment.resources",
    "Failures": "tuner.experiment.failures",
    "Notify": "tuner.experiment.notify",
    "Tracking": "tuner.experiment.tracking",
    "MlflowTracking": "tuner.experiment.tracking",
    "TensorboardTracking": "tuner.experiment.tracking",
    "WandbTracking": "tuner.experiment.tracking",
    "CustomTracking": "tuner.experiment.tracking",
    "TrackingBackend": "tuner.tracking.backends.base",
    "searchers": "",
    "schedulers": "",
    "errors": "",
    "run": "tuner.actions.run",
    "resume": "tuner.actions.resume",
    "extend": "tuner.actions.resume",
    "retry": "tuner.actions.resume",
    "validate": "tuner.actions.run",
    "load_run": "tuner.runs.loading",
    "report": "tuner.training.reporting",
    "space_from_objective": "tuner.trainable.optuna_space",
    "get_checkpoint": "tuner.training.reporting",
    "restore_best": "tuner.runs.restore",
    "ResultSet": "tuner.runs.results",
    "Trial": "tuner.runs.trial",
    "Report": "tuner.runs.trial",
    "Callback": "tuner.callback",
    "simulate": "tuner.simulator",
    "Table": "tuner.simulator",
}
"""The module that defines each public name; empty for a module of its own."""


def __getattr__(name: str) -> Any:
    """Imports the public names when they are first asked for: ``import tuner`` itself stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tuner' has no attribute {name!r}")
    import importlib

    home = _HOMES[name]
    return getattr(importlib.import_module(home), name) if home else importlib.import_module(f"tuner.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
