"""What holds a run elsewhere: MLflow, TensorBoard, Weights & Biases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial


class TrackingBackend(Protocol):
    """Holds elsewhere what the run folder holds.

    Each method may be called again after it failed, and in another process after a resume: what is there already is
    found and not made twice. Each raises EnvironmentFailure where the place cannot be reached or refuses.
    """

    name: str
    """For the user: what it is and where."""

    def open(self, results: ResultSet) -> None:
        """Finds what is there of the run."""

    def send(self, results: ResultSet, trials: Iterable[Trial]) -> None:
        """Brings ``trials`` up to date, while the search runs."""

    def close(self, results: ResultSet) -> None:
        """Brings everything up to date: no process searches any more."""


def identity(results: ResultSet) -> str:
    """The same for a run through its resumes, and another for every other run."""
    provenance = results.provenance
    return str(provenance.get("id") or f"{results.name} {provenance.get('started', '')}")


def is_over(results: ResultSet) -> bool:
    """Whether the search came to its end (and was not interrupted, nor killed)."""
    return results.provenance.get("interrupted") is False


def step_of(results: ResultSet, report: Report) -> int:
    """The report's place on the scheduler's time axis; the report's number if that is not a whole number."""
    at = report.metrics.get(results.section("scheduler").get("time_attr", ""), report.step)
    return int(at) if isinstance(at, (int, float)) and at == int(at) else report.step


def numbers(report: Report) -> dict[str, float]:
    """Its metrics that are numbers."""
    return {name: float(value) for name, value in report.metrics.items() if isinstance(value, (bool, int, float))}


def digest(reports: Sequence[Report]) -> str:
    """Changes with any number in ``reports``, not with the time at which they came."""
    told: list[Any] = [[report.step, sorted(numbers(report).items())] for report in reports]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
