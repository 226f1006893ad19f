"""Where a run is seen: progress on the terminal, and mirrors that hold it elsewhere, sent by a process of their own."""

from __future__ import annotations

from collections.abc import Callable

from tuner.errors import EnvironmentFailure
from tuner.experiment.tracking import Tracking
from tuner.runs.results import ResultSet
from tuner.storage.folder import RunFolder
from tuner.tracking.backends.base import TrackingBackend


def backends_of(tracking: Tracking, results: ResultSet) -> list[TrackingBackend]:
    """Those that an experiment asks for. Raises InputError where one cannot be made for this run."""
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
    """Raises EnvironmentFailure where a mirror that is required cannot be used; says so of one that is not."""
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
