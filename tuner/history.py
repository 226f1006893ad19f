"""How events change what is known of a run: the same for a search that runs and for its journal, read back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tuner.failure import Failure
from tuner.journal import Event
from tuner.results import ResultSet
from tuner.trial import Report, Segment, Status, Trial

INTERRUPTED = "interrupted"
WAITS_AT_RUNG = "waits at its rung"


class History:
    """Writes what happens into a `ResultSet`. Each method is an event of the journal."""

    def __init__(self, results: ResultSet) -> None:
        self.results = results

    def suggested(self, trial_id: str, config: dict[str, Any]) -> Trial:
        """A new trial."""
        return self.results.add(Trial(trial_id, len(self.results.trials) + 1, dict(config)))

    def started(self, trial_id: str, host: str = "") -> None:
        """It got its resources, on ``host``; empty where that is not known."""
        trial = self.results.trial(trial_id)
        trial.status, trial.reason, trial.host = "running", "", host

    def reported(self, report: Report, segment: Segment | None = None) -> bool:
        """A trial's report, after which it goes on with ``segment``; whether it is the trial's best.

        A report of a step that was there already (the trial was taken back to a checkpoint) replaces it.
        """
        trial = self.results.trial(report.trial_id)
        if trial.steps >= report.step:
            replaced = [r for r in trial.reports if r.step < report.step]
            later = [r for r in trial.reports if r.step > report.step]
            trial.reports = [*replaced, report, *later]
            self._find_best(trial)
        else:
            trial.reports.append(report)
            if self._is_best(trial.best, report):
                trial.best = report
                trial.config = trial.config_at(report.step)
        if segment is not None:
            trial.segments = trial.segments or [Segment(0, trial.config)]
            trial.segments.append(segment)
        return trial.best is report

    def _find_best(self, trial: Trial) -> None:
        trial.best = None
        for report in trial.reports:
            if self._is_best(trial.best, report):
                trial.best = report
        if trial.best:
            trial.config = trial.config_at(trial.best.step)

    def _is_best(self, best: Report | None, report: Report) -> bool:
        """Whether ``report`` replaces ``best``; of equals the later, as Ray's retention keeps the later one's files."""
        if best is None or bool(best.checkpoint) != bool(report.checkpoint):
            return best is None or report.checkpoint is not None
        return not self.results.better(self.results.value(best), self.results.value(report))

    def lost(self, trial_id: str, checkpoint: str) -> None:
        """A checkpoint cannot be used any more."""
        trial = self.results.trial(trial_id)
        trial.reports = [replace(r, checkpoint=None) if r.checkpoint == checkpoint else r for r in trial.reports]
        self._find_best(trial)

    def paused(self, trial_id: str, reason: str = WAITS_AT_RUNG) -> None:
        """It gave its resources back, and can go on from its checkpoint."""
        trial = self.results.trial(trial_id)
        trial.status, trial.reason = "paused", reason

    def failed_attempt(self, trial_id: str, failure: Failure) -> None:
        """It failed; whether it goes on is another event."""
        trial = self.results.trial(trial_id)
        trial.failures.append(failure)
        if failure.micro_batch is not None:
            trial.micro_batch = failure.micro_batch

    def ended(self, trial_id: str, status: Status, reason: str, rung: int | None = None) -> None:
        """Nothing of it will run any more."""
        trial = self.results.trial(trial_id)
        trial.status, trial.reason, trial.rung = status, reason, rung

    def reopened(self, trial_id: str) -> None:
        """An ended trial may go on."""
        trial = self.results.trial(trial_id)
        trial.status, trial.reason, trial.rung = ("paused" if trial.reports else "pending"), "", None

    def apply(self, event: Event) -> None:
        """An event as the journal has it; those that change nothing here are passed over."""
        trial_id = event.get("trial", "")
        match event["what"]:
            case "suggested":
                self.suggested(trial_id, event["config"])
            case "started":
                self.started(trial_id, event.get("host", ""))
            case "reported":
                self.reported(_report(event), Segment(**event["segment"]) if "segment" in event else None)
            case "lost":
                self.lost(trial_id, event["checkpoint"])
            case "paused":
                self.paused(trial_id)
            case "failed attempt":
                self.failed_attempt(trial_id, _failure(event))
            case "ended":
                self.ended(trial_id, event["status"], event["reason"], event["rung"])
            case "reopened":
                self.reopened(trial_id)


def _report(event: Event) -> Report:
    return Report(
        event["trial"], event["step"], event["seconds"], event["timestamp"], event["metrics"], event["checkpoint"]
    )


def _failure(event: Event) -> Failure:
    return Failure(event["kind"], event["message"], event["step"], event.get("micro_batch"), not event["retried"])
