"""Listeners of a run: progress on the terminal, and trackers that record trials elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.engine.recorder import Listener
    from tuner.spec.experiment import ExperimentSpec


def listeners_of(spec: ExperimentSpec, storage: str) -> list[Listener]:
    """The trackers that an experiment asks for."""
    if spec.tracking.mlflow is None:
        return []
    from tuner.tracking.mlflow import MlflowTracker

    return [MlflowTracker(spec.tracking.mlflow, spec.name, storage)]
