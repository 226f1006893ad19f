"""The events that a run folder tells, from its journal or, where that knows less, from its tables."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.failure import Failure
from tuner.journal import Event, exact, read_journal
from tuner.results import ResultSet
from tuner.schedulers.base import Decision, Exploit
from tuner.trial import Report, Segment


def known_events(results: ResultSet) -> Iterable[Event]:
    """What has happened in the run of ``results``: its journal, or where that knows less, what its tables tell."""
    events = read_journal(results.folder).events
    return events_of(results) if knows_less(events, results) else events


def knows_less(events: Iterable[Event], results: ResultSet) -> bool:
    """Whether a journal lacks reports that the tables have."""
    told = {(event["trial"], event["step"]) for event in events if event["what"] == "reported"}
    return len(told) < sum(len(trial.reports) for trial in results.trials)


def reported(report: Report, decision: Decision | Exploit, segment: Segment | None) -> Event:
    """The fields of a report's event."""
    kept = {k: v for k, v in report.metrics.items() if isinstance(v, (bool, int, float, str)) or v is None}
    what = "exploit" if isinstance(decision, Exploit) else decision.value
    fields = {"trial": report.trial_id, "step": report.step, "seconds": report.seconds, "timestamp": report.timestamp}
    fields |= {"metrics": kept, "checkpoint": report.checkpoint, "decision": what}
    if segment is not None:
        fields["segment"] = {
            "after": segment.after,
            "config": exact(segment.config),
            "donor": segment.donor,
            "donor_step": segment.donor_step,
        }
    return fields


def failed_attempt(trial_id: str, failure: Failure) -> Event:
    """The fields of a failure's event."""
    fields = {"trial": trial_id, "kind": failure.kind, "message": failure.message, "step": failure.step}
    fields |= {"retried": not failure.final}
    return fields | ({"micro_batch": failure.micro_batch} if failure.micro_batch is not None else {})


def events_of(results: ResultSet) -> list[Event]:
    """The events that lead to ``results``, as far as their tables tell: reports in the order of their time."""
    timed: list[tuple[float, int, int, Event]] = []
    now = 0.0
    for trial in results.trials:
        now = max(now, trial.reports[0].timestamp if trial.reports else now)
        timed.append((now, 0, trial.number, {"what": "suggested", "trial": trial.id, "config": trial.config}))
        for report in trial.reports:
            event = {"what": "reported", **reported(report, Decision.CONTINUE, None)}
            timed.append((max(now, report.timestamp), 1, trial.number, event))
        end = max(now, trial.reports[-1].timestamp if trial.reports else now)
        for failure in trial.failures:
            event = {"what": "failed attempt", **failed_attempt(trial.id, failure)}
            timed.append((end, 1, trial.number, event))
        if trial.has_ended:
            ended = {"trial": trial.id, "status": trial.status, "reason": trial.reason, "rung": trial.rung}
            timed.append((end, 2, trial.number, {"what": "ended", **ended}))
    return [event for *_, event in sorted(timed, key=lambda item: item[:3])]
