"""How events change what is known of a run: the same for a search that runs and for its journal, read back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from tuner.redaction import recorded
from tuner.runs.commands import Commanded
from tuner.runs.consumption import consumption_of
from tuner.runs.events import Event
from tuner.runs.failure import Failure
from tuner.runs.file_shapes import Provenance, usable
from tuner.runs.journal import JournalReader
from tuner.runs.results import ResultSet
from tuner.runs.trial import Origin, Report, Segment, Status, Trial
from tuner.storage.folder import RunFolder

INTERRUPTED = "interrupted"
WAITS_AT_RUNG, ASIDE = "waits at its rung", "waits for a slot"


class EventApplier:
    """Writes what happens into a `ResultSet`. Each method is an event of the journal."""

    def __init__(self, results: ResultSet) -> None:
        self.results = results

    def suggested(
        self, trial_id: str, config: dict[str, Any], micro_batch: int | None = None, origin: Origin | None = None
    ) -> Trial:
        """A new trial; ``micro_batch``: a smaller one than the configuration has, with which it starts."""
        number = len(self.results.trials) + 1
        trial = Trial(trial_id, number, dict(config), micro_batch=micro_batch, origin=origin)
        if origin and origin.step is not None:
            trial.segments.append(Segment(0, trial.config, origin.parent, origin.step))
        return self.results.add(trial)

    def started(self, trial_id: str, host: str = "") -> None:
        """It got its resources, on ``host``; empty if that is not known."""
        trial = self.results.trial(trial_id)
        trial.status, trial.reason, trial.host = "running", "", host

    def reported(self, report: Report, segment: Segment | None = None) -> bool:
        """A trial's report, after which it continues with ``segment``; whether it is the trial's best.

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
        if best is None:
            return True
        if (kept := self.results.is_feasible(report)) != self.results.is_feasible(best):
            return kept
        if bool(best.checkpoint) != bool(report.checkpoint):
            return report.checkpoint is not None
        return not self.results.point(best)[0] > self.results.point(report)[0]

    def lost(self, trial_id: str, checkpoint: str) -> None:
        """A checkpoint cannot be used any more."""
        trial = self.results.trial(trial_id)
        trial.reports = [replace(r, checkpoint=None) if r.checkpoint == checkpoint else r for r in trial.reports]
        self._find_best(trial)

    def paused(self, trial_id: str, reason: str = WAITS_AT_RUNG) -> None:
        """It gave its resources back, and can continue from its checkpoint."""
        trial = self.results.trial(trial_id)
        trial.status, trial.reason = "paused", reason

    def failed_attempt(self, trial_id: str, failure: Failure) -> None:
        """It failed; whether it continues is another event."""
        trial = self.results.trial(trial_id)
        trial.failures.append(failure)
        if failure.micro_batch is not None:
            trial.micro_batch = failure.micro_batch

    def ended(self, trial_id: str, status: Status, reason: str, rung: int | None = None) -> None:
        """Nothing of it will run any more."""
        trial = self.results.trial(trial_id)
        trial.status, trial.reason, trial.rung = status, reason, rung

    def commanded(self, event: Event) -> None:
        """A command was carried out, or refused."""
        told = {name: event[name] for name in ("id", "do", "by", "sent", "arguments", "done", "reason")}
        self.results.commands.append(Commanded(**told, trials=tuple(event["trials"])))
        self.results.spec = self.results.spec | event.get("changed", {})

    def reopened(self, trial_id: str) -> None:
        """An ended trial may continue."""
        trial = self.results.trial(trial_id)
        trial.status, trial.reason, trial.rung = ("paused" if trial.reports else "pending"), "", None

    def apply(self, event: Event) -> bool:
        """An event as the journal has it; whether it changed anything here.

        An event of a trial whose suggestion is lost (in a damaged journal) changes nothing.
        """
        what, trial_id = event["what"], event.get("trial", "")
        if "trial" in event and what not in ("suggested", "trial") and self.results.get(trial_id) is None:
            return False
        if not self.results.spec and what not in ("began", "extended"):
            return False  # what the trials were compared by is lost
        match what:
            case "began":
                self.results.begin_again(recorded(event["spec"]))
            case "extended":
                self.results.spec = recorded(event["spec"])
            case "reopened":
                pass
            case "commanded":
                self.commanded(event)
            case "trial":
                return self._restore(event)
            case "suggested":
                self.suggested(trial_id, event["config"], event.get("micro_batch"), origin_of(event))
            case "started":
                self.started(trial_id, event.get("host", ""))
            case "reported":
                self._report(event)
            case "lost":
                self.lost(trial_id, event["checkpoint"])
            case "paused":
                self.paused(trial_id, ASIDE if event.get("aside") else WAITS_AT_RUNG)
            case "failed attempt":
                self.failed_attempt(trial_id, _failure(event))
            case "ended":
                self.ended(trial_id, event["status"], event["reason"], event["rung"])
            case _:
                return False
        for reopened in reopened_by(event):
            if self.results.get(reopened):
                self.reopened(reopened)
        return True

    def _report(self, event: Event) -> None:
        trial = self.results.trial(event["trial"])
        trial_id = trial.id  # what all reports have in common is kept once
        metrics = {sys.intern(name): value for name, value in event["metrics"].items()}
        measured = consumption_of(event["consumed"]) if "consumed" in event else None
        report = Report(
            trial_id,
            event["step"],
            event["seconds"],
            event["timestamp"],
            metrics,
            event["checkpoint"],
            trial.consumed_at(event["step"], measured),
        )
        self.reported(report, Segment(**event["segment"]) if "segment" in event else None)

    def _restore(self, event: Event) -> bool:
        trial = trial_of(event)
        if trial is not None:
            self._find_best(self.results.add(trial))
        return trial is not None


def reopened_by(event: Event) -> Sequence[str]:
    """Trials that had ended and continue after ``event``; earlier versions wrote an event for each of them."""
    match event["what"]:
        case "extended":
            found: Sequence[str] = event.get("reopened", ())
            return found
        case "reopened":
            return (event["trial"],)
    return ()


def origin_of(event: Event) -> Origin | None:
    """Of the trial that an event tells of."""
    return Origin(**event["origin"]) if event.get("origin") else None


_SIMPLE = ("number", "config", "status", "reason", "rung", "micro_batch", "host")


def state_of(trial: Trial) -> dict[str, Any]:
    """All that is known of ``trial``, for the event "trial" of a journal that begins again."""
    return {name: getattr(trial, name) for name in _SIMPLE} | {
        "reports": [_values(report) for report in trial.reports],
        "segments": [asdict(segment) for segment in trial.segments],
        "failures": [asdict(failure) for failure in trial.failures],
        **({"origin": asdict(trial.origin)} if trial.origin else {}),
    }


def _values(report: Report) -> list[Any]:
    told = [report.step, report.seconds, report.timestamp, report.metrics, report.checkpoint]
    return told if report.consumption is None else [*told, report.consumption.named()]


def _report(
    trial_id: str,
    step: int,
    seconds: float,
    timestamp: float,
    metrics: dict[str, Any],
    checkpoint: str | None,
    consumed: dict[str, Any] | None = None,
) -> Report:
    told = None if consumed is None else consumption_of(consumed)
    return Report(trial_id, step, seconds, timestamp, metrics, checkpoint, told)


def trial_of(event: Event) -> Trial | None:
    """The trial of an event "trial", but for which of its reports is the best; None if the event is damaged."""
    state = event["state"]
    try:
        reports = [_report(event["trial"], *values) for values in state["reports"]]
        segments = [Segment(**segment) for segment in state["segments"]]
        failures = [Failure(**failure) for failure in state["failures"]]
        simple = {name: state[name] for name in _SIMPLE}
    except (KeyError, TypeError):
        return None
    origin = origin_of(state)
    return Trial(event["trial"], **simple, reports=reports, segments=segments, failures=failures, origin=origin)


def journalled(folder: RunFolder, provenance: dict[str, Any]) -> tuple[EventApplier, JournalReader]:
    """What the journal of ``folder`` tells; its reader reads on from there.

    ``provenance``: that of the run's file; what it lacks is the journal's to tell.
    """
    reader, history = JournalReader(folder), EventApplier(ResultSet(folder, {}, provenance))
    last: Event = {"what": ""}
    for last in reader.new():
        if last["what"] == "began":
            history.results.provenance = usable(Provenance, last["provenance"])[0] | history.results.provenance
        history.apply(last)
    if not reader.damage:  # else the end may be among what cannot be read
        set_ending(history.results, last)
    return history, reader


def set_ending(results: ResultSet, last: Event) -> None:
    """Corrects ``results`` by the ``last`` event: provenance.json is written after it, which a kill may prevent."""
    left = last if last["what"] == "left" else {}  # what follows an end, such as "extended", undoes it
    results.provenance |= {"interrupted": left.get("interrupted"), "interrupted_by": left.get("reason", "")}


def _failure(event: Event) -> Failure:
    return Failure(event["kind"], event["message"], event["step"], event.get("micro_batch"), not event["retried"])
