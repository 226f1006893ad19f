"""tuner: hyperparameter search on Ray Tune, from one YAML file.

from tuner import run, load_run

results = run("experiments/quickstart.yaml", {"budget.trials": 6})
print(results.best.config, load_run(results.folder.shown).frame())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tuner.best import restore_best
    from tuner.loading import load_run
    from tuner.results import ResultSet
    from tuner.resumption import extend, resume, retry
    from tuner.runner import run, validate
    from tuner.simulator import Table, simulate

__all__ = [
    "ResultSet",
    "Table",
    "extend",
    "load_run",
    "restore_best",
    "resume",
    "retry",
    "run",
    "simulate",
    "validate",
]

_HOMES = {
    "run": "tuner.runner",
    "resume": "tuner.resumption",
    "extend": "tuner.resumption",
    "retry": "tuner.resumption",
    "validate": "tuner.runner",
    "load_run": "tuner.loading",
    "ResultSet": "tuner.results",
    "restore_best": "tuner.best",
    "simulate": "tuner.simulator",
    "Table": "tuner.simulator",
}


def __getattr__(name: str) -> Any:
    """Imports the public names when they are first asked for: ``import tuner`` itself stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tuner' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
