"""What records a run elsewhere: MLflow, TensorBoard, Weights & Biases, and trackers of third parties."""

from __future__ import annotations

import abc
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial


class TrackingBackend(abc.ABC):
    """A tracker: records elsewhere what the run folder holds. ``tracking.custom`` in the experiment file names one.

    A process of its own follows the journal of the run and calls `open`, `send` and `close`, so that the search never
    waits. A method may be called again after it failed, and in another process after a resume: find what is there
    already, and do not make it twice. If the place cannot be reached, raise `tuner.errors.EnvironmentFailure`; the call
    is repeated later. Any other exception counts as one, and the notice shows its type and line.

    The arguments of the class are ``options`` of the experiment file. Do no work in ``__init__``: the search's own
    process makes an object too, to call `check`.

    Example:
        >>> from tuner.runs.trial import Report, Trial
        >>> class Largest(TrackingBackend):
        ...     name = "a dictionary"
        ...     def __init__(self, metric):
        ...         self.metric, self.found = metric, {}
        ...     def open(self, results): ...
        ...     def send(self, results, trials):
        ...         for trial in trials:
        ...             self.found[trial.id] = max(report.metrics[self.metric] for report in trial.reports)
        ...     def close(self, results):
        ...         self.send(results, results.trials)
        >>> backend = Largest("accuracy")
        >>> trial = Trial("t1", 1, {"lr": 0.1}, reports=[Report("t1", 1, 2.0, 0.0, {"accuracy": 0.5})])
        >>> backend.send(None, [trial])
        >>> backend.found
        {'t1': 0.5}
    """

    name: str = ""
    """For messages: what it is and where. Empty: its class path."""

    def check(self) -> None:  # noqa: B027 - not abstract: one that needs no server has nothing to check
        """Called once before the search starts, in its process.

        Raises:
            EnvironmentFailure: The place cannot be used. The search does not start, or prints a notice if the
                experiment has ``required: false``.
        """

    @abc.abstractmethod
    def open(self, results: ResultSet) -> None:
        """Finds what is there of the run. Called before the first `send`, and again after a failure.

        Args:
            results: The run: its name, its folder, its experiment (``spec``), and the trials so far.

        Raises:
            EnvironmentFailure: The place cannot be reached, or refuses.
        """

    @abc.abstractmethod
    def send(self, results: ResultSet, trials: Iterable[Trial]) -> None:
        """Brings trials up to date, while the search runs. Called at most once a second.

        Args:
            results: The run, with all its trials.
            trials: Those of which something is new. ``trial.reports`` are all its reports; after a retry some may
                have been replaced.

        Raises:
            EnvironmentFailure: The place cannot be reached, or refuses. The same trials come again later.
        """

    @abc.abstractmethod
    def close(self, results: ResultSet) -> None:
        """Brings everything up to date. Called at the end of the search, and by ``tuner sync``.

        Args:
            results: The run, read anew from its folder: ``results.provenance["interrupted"]`` is False if the search
                came to its end.

        Raises:
            EnvironmentFailure: The place cannot be reached, or refuses. It is tried once more.
        """


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
