"""Trackers, such as MLflow: what a run folder holds is sent to them by a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tuner.errors import EnvironmentFailure
from tuner.experiment.notify import Notify
from tuner.experiment.tracking import CustomTracking, Tracking
from tuner.runs.results import ResultSet
from tuner.storage.folder import RunFolder
from tuner.tracking.backends.base import TrackingBackend


def backends_of(tracking: Tracking, results: ResultSet) -> list[TrackingBackend]:
    """Those that an experiment asks for. Raises InputError if one cannot be made for this run."""
    backends: list[TrackingBackend] = []
    if tracking.mlflow is not None:
        from tuner.tracking.backends.mlflow import MlflowBackend

        backends.append(MlflowBackend(tracking.mlflow, results))
    if tracking.tensorboard is not None:
        from tuner.tracking.backends.tensorboard import TensorboardBackend

        backends.append(TensorboardBackend(results))
    if tracking.wandb is not None:
        from tuner.tracking.backends.wandb import WandbBackend

        backends.append(WandbBackend(tracking.wandb, results))
    if tracking.custom:
        from tuner.runs.provenance import roots
        from tuner.tracking.backends.custom import CustomBackend

        backends += [CustomBackend(custom, roots(results)) for custom in tracking.custom]
    return backends


def check_reachable(
    tracking: Tracking, storage: RunFolder, roots: tuple[Path, ...], say: Callable[[str], None]
) -> None:
    """Raises EnvironmentFailure if a required backend cannot be used; prints a notice about any other."""
    from tuner.tracking.preflight import check_mlflow, check_wandb

    checks: list[tuple[bool, Callable[[], None]]] = []
    if (mlflow := tracking.mlflow) is not None:
        checks.append((mlflow.required, lambda: check_mlflow(mlflow.uri, storage)))
    if (wandb := tracking.wandb) is not None:
        checks.append((wandb.required, lambda: check_wandb(wandb.mode)))
    checks += [(custom.required, partial(_check, custom, roots)) for custom in tracking.custom or ()]
    for required, check in checks:
        try:
            check()
        except EnvironmentFailure as error:
            if required:
                raise
            say(f"NOTICE: {error}")


def check_notify(notify: Notify | None) -> None:
    """Raises InputError if messages could not be sent, as the environment does not tell their address."""
    if notify is not None:
        from tuner.tracking.delivery import address

        address(notify)


def _check(custom: CustomTracking, roots: tuple[Path, ...]) -> None:
    from tuner.tracking.backends.custom import CustomBackend

    CustomBackend(custom, roots).check()
