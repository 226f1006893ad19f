"""A trial: a configuration, what it reported, and what became of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from tuner.runs.consumption import Consumption, of_trial
from tuner.runs.failure import Failure
from tuner.spec.quantities import counted

Status = Literal["completed", "stopped", "failed", "pending", "running", "paused"]


@dataclass(frozen=True, slots=True)
class Report:
    """One call of ``ray.tune.report``. A large search has millions of them.

    Example:
        >>> from tuner import Report
        >>> Report(trial_id="t1", step=1, seconds=2.0, timestamp=0.0, metrics={"loss": 0.5}).number("loss")
        0.5
    """

    trial_id: str
    step: int
    """Number of the trial's report, from 1, counted over restarts (Ray's ``training_iteration``)."""
    seconds: float
    """The trial's own running time so far."""
    timestamp: float
    """Seconds since 1970."""
    metrics: dict[str, Any]
    checkpoint: str | None = None
    """Folder of the checkpoint reported with it, below the run folder; None if there was none."""
    consumption: Consumption | None = None
    """What the trial's processes consumed up to it; None if it was not measured."""

    def number(self, metric: str) -> float:
        """The value of ``metric``; NaN if it was not reported, or is not a number that a float can hold."""
        try:
            return float(self.metrics[metric])
        except (KeyError, TypeError, ValueError, OverflowError):
            return math.nan

    def progress(self, time_attr: str) -> float:
        """How far the trial was, in units of ``time_attr``; in reports where it did not report that."""
        found = self.number(time_attr)
        return found if math.isfinite(found) else float(self.step)


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a trial with one configuration: population-based training changes it in mid-trial."""

    after: int
    """The trial's report after which it begins."""
    config: dict[str, Any]
    donor: str | None = None
    """The trial from whose checkpoint it continues; None at the trial's own start."""
    donor_step: int = 0
    """The donor's report that came with that checkpoint."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a trial that the searcher did not suggest."""

    by: str
    """Who added it."""
    parent: str | None = None
    """The trial that it is a clone of; None if it is none."""
    step: int | None = None
    """The parent's report that came with the checkpoint from which it starts; None if it starts from none."""
    begins_at: int = 0
    """The fidelity of that checkpoint, as the clone counts it."""


@dataclass(slots=True)
class Trial:
    """One configuration and what became of it.

    Example:
        >>> from tuner import Report, Trial
        >>> trial = Trial("t1", 1, {"lr": 0.1}, reports=[Report("t1", 1, 2.0, 0.0, {"loss": 0.5})])
        >>> trial.steps, trial.label
        (1, '#1 (t1)')
    """

    id: str
    number: int
    """Order of suggestion, from 1."""
    config: dict[str, Any]
    """The one in force at its best report (its first one where `segments` is empty)."""
    status: Status = "pending"
    reason: str = ""
    """Why it ended (or has not)."""
    rung: int | None = None
    """The rung at which the scheduler stopped it. If it completed: at which it was to be stopped, and the audit kept
    it (``scheduler.audit``)."""
    reports: list[Report] = field(default_factory=list)
    best: Report | None = None
    """Its best report that has a checkpoint (its best report where it never made one); by the first objective."""
    segments: list[Segment] = field(default_factory=list)
    """In order; empty for a trial that kept its configuration."""
    failures: list[Failure] = field(default_factory=list)
    """Its attempts that failed, in order."""
    micro_batch: int | None = None
    """The micro-batch to which it was reduced for lack of memory; None: it runs as it was suggested."""
    host: str = ""
    """The node on which it ran last (its first worker); empty if it never started."""
    origin: Origin | None = None
    """Its source; None if the searcher suggested it."""

    @property
    def steps(self) -> int:
        return self.reports[-1].step if self.reports else 0

    @property
    def seconds(self) -> float:
        return self.reports[-1].seconds if self.reports else 0.0

    @property
    def first_config(self) -> dict[str, Any]:
        """The one that it was suggested with."""
        return self.segments[0].config if self.segments else self.config

    def config_at(self, step: int) -> dict[str, Any]:
        """The configuration in force at report ``step``."""
        return next((s.config for s in reversed(self.segments) if s.after < step), self.config)

    def consumed_at(self, step: int, measured: Consumption | None) -> Consumption | None:
        """What was ``measured`` at report ``step``, with the peaks of earlier reports and of replaced ones."""
        if measured is None:
            return None
        if self.steps >= step:  # it was taken back to a checkpoint
            return measured.after(self.consumption)
        return measured.after(self.reports[-1].consumption if self.reports else None)

    @property
    def consumption(self) -> Consumption:
        """Of the whole trial: peaks over all its attempts, up to the last report of each."""
        return of_trial((report.seconds, report.consumption) for report in self.reports)

    @property
    def why(self) -> str:
        """Why it ended (or has not), with what its last failed attempt met."""
        count = len(self.failures)
        if self.status == "failed":
            return f"{self.reason} ({count} attempts)" if count > 1 else self.reason
        last = f"{counted(count, 'failed attempt')}, the last: {self.failures[-1]}" if count else ""
        return "; ".join(filter(None, [self.reason, last]))

    @property
    def label(self) -> str:
        return f"#{self.number} ({self.id})"

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it will run any more."""
        return self.status in ("completed", "stopped", "failed")
