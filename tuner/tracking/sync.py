"""Sends a run that no process searches any more."""

from __future__ import annotations

from tuner.errors import InputError
from tuner.experiment.tracking import MlflowTracking, Tracking, mlflow_at
from tuner.runs.provenance import roots
from tuner.runs.results import ResultSet
from tuner.storage.lock import holder, locked
from tuner.tracking import backends_of, check_reachable
from tuner.tracking.backends.base import TrackingBackend
from tuner.tracking.follower import TRACKING_LOCK


def sync_run(results: ResultSet, mlflow_uri: str | None = None) -> list[TrackingBackend]:
    """Brings the backends of a run up to date, and returns them.

    ``mlflow_uri``: of the MLflow to send to in place of what the experiment asks for. Raises InputError if a process
    searches, which sends by itself, and EnvironmentFailure where a backend cannot be used.
    """
    if holder(results.folder) is not None:
        raise InputError(f"{results.folder.location}: the search runs, and sends what happens by itself")
    tracking = tracking_of(results, mlflow_uri)
    places = roots(results) if tracking.custom else ()  # a damaged run folder may not tell them
    check_reachable(tracking, results.folder.parent, places, lambda text: None)
    backends = backends_of(tracking, results)
    with locked(results.folder, TRACKING_LOCK, patience=60):
        for backend in backends:
            backend.open(results)
            backend.close(results)
    return backends


def tracking_of(results: ResultSet, mlflow_uri: str | None = None) -> Tracking:
    """What the experiment of a run asks for; MLflow beside the run folders where it asks for nothing.

    Raises InputError if ``mlflow_uri`` is none.
    """
    tracking = Tracking.model_validate(results.section("tracking"))
    if mlflow_uri is not None:
        checked = mlflow_at(mlflow_uri)
        return Tracking(mlflow=(tracking.mlflow or checked).model_copy(update={"uri": mlflow_uri, "required": True}))
    return tracking if tracking.anywhere else Tracking(mlflow=MlflowTracking())
