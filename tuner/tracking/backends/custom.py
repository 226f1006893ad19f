"""Trackers of the user's own, or of third parties."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tuner.errors import EnvironmentFailure
from tuner.experiment.plug_ins import tracking_class
from tuner.experiment.tracking import CustomTracking
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.spec.user_imports import innermost, user_code
from tuner.tracking.backends.base import TrackingBackend


class CustomBackend(TrackingBackend):
    """A backend of another author. Any exception of it counts as a place that cannot be reached: it is tried again."""

    def __init__(self, custom: CustomTracking, roots: tuple[Path, ...]) -> None:
        self.name, self._roots = f"tracking.custom: {custom.class_path}", roots
        self._backend = self._call(tracking_class(custom, roots), **custom.options)
        self.name = str(getattr(self._backend, "name", "") or self.name)

    def check(self) -> None:
        self._call(self._backend.check)

    def open(self, results: ResultSet) -> None:
        self._call(self._backend.open, results)

    def send(self, results: ResultSet, trials: Iterable[Trial]) -> None:
        self._call(self._backend.send, results, trials)

    def close(self, results: ResultSet) -> None:
        self._call(self._backend.close, results)

    def _call(self, function: Callable[..., Any], *values: Any, **options: Any) -> Any:
        """Calls ``function`` where it finds its modules. Raises EnvironmentFailure if it raises anything."""
        try:
            with user_code(self._roots):
                return function(*values, **options)
        except EnvironmentFailure:
            raise
        except Exception as error:
            raise EnvironmentFailure(f"{self.name}: {innermost(error)}") from error
