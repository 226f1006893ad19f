"""Trackers that mirror a run elsewhere, such as MLflow; a process of their own sends it."""

from __future__ import annotations

from collections.abc import Callable

from tuner.errors import EnvironmentFailure
from tuner.experiment.tracking import Tracking
from tuner.runs.results import ResultSet
from tuner.storage.folder import RunFolder
from tuner.tracking.backends.base import TrackingBackend


def backends_of(tracking: Tracking, results: ResultSet) -> list[TrackingBackend]:
    """Those that an experiment asks for. Raises InputError if one cannot be made for this run."""
    mirrors: list[TrackingBackend] = []
    if tracking.mlflow is not None:
        from tuner.tracking.backends.mlflow import MlflowBackend

        mirrors.append(MlflowBackend(tracking.mlflow, results))
    if tracking.tensorboard is not None:
        from tuner.tracking.backends.tensorboard import TensorboardBackend

        mirrors.append(TensorboardBackend(results))
    if tracking.wandb is not None:
        from tuner.tracking.backends.wandb import WandbBackend

        mirrors.append(WandbBackend(tracking.wandb, results))
    return mirrors


def check_reachable(tracking: Tracking, storage: RunFolder, say: Callable[[str], None]) -> None:
    """Raises EnvironmentFailure if a required mirror cannot be used; prints a notice about any other."""
    from tuner.tracking.preflight import check_mlflow, check_wandb

    checks: list[tuple[bool, Callable[[], None]]] = []
    if (mlflow := tracking.mlflow) is not None:
        checks.append((mlflow.required, lambda: check_mlflow(mlflow.uri, storage)))
    if (wandb := tracking.wandb) is not None:
        checks.append((wandb.required, lambda: check_wandb(wandb.mode)))
    for required, check in checks:
        try:
            check()
        except EnvironmentFailure as error:
            if required:
                raise
            say(f"NOTICE: {error}")
