"""Events as the engine writes them, and those that stand for what a journal no longer tells one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from tuner.runs.commands import Commanded
from tuner.runs.events import Compared, Event
from tuner.runs.failure import Failure
from tuner.runs.history import trial_of
from tuner.runs.journal import JournalReader
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Segment, Status, Trial
from tuner.schedulers.base import Decision, Exploit, SchedulerSpec


def known_events(results: ResultSet) -> Iterator[Event]:
    """What has happened in the run of ``results``: its journal's events; where it has none, what its tables tell."""
    empty = True
    for event in one_by_one(JournalReader(results.folder, Compared.by(results.spec)).new()):
        empty = False
        yield event
    if empty:
        yield from events_of(results.trials)


def one_by_one(events: Iterable[Event]) -> Iterator[Event]:
    """``events``, and in place of whole trials, which a recovery wrote down, what they tell one by one."""
    restored: dict[str, tuple[Trial, int]] = {}
    for event in events:
        if event["what"] == "trial":
            if trial := trial_of(event):
                restored[trial.id] = trial, event["n"]
            continue
        if event["what"] == "recovered":
            for told in events_of([trial for trial, _ in restored.values()]):
                yield {**told, "n": restored[told["trial"]][1]}
        yield event


def reported(report: Report, decision: Decision | Exploit, segment: Segment | None) -> Event:
    """The fields of a report's event."""
    kept = {k: v for k, v in report.metrics.items() if isinstance(v, (bool, int, float, str)) or v is None}
    what = "exploit" if isinstance(decision, Exploit) else decision.value
    fields = {"trial": report.trial_id, "step": report.step, "seconds": report.seconds, "timestamp": report.timestamp}
    fields |= {"metrics": kept, "checkpoint": report.checkpoint, "decision": what}
    if report.consumption is not None:
        fields["consumed"] = report.consumption.named()
    if segment is not None:
        fields["segment"] = {
            "after": segment.after,
            "config": segment.config,
            "donor": segment.donor,
            "donor_step": segment.donor_step,
        }
    return fields


def commanded(command: Commanded) -> Event:
    """The event of a command, without what it changed of the experiment."""
    fields = {name: getattr(command, name) for name in ("id", "do", "by", "sent", "arguments", "done", "reason")}
    return {"what": "commanded", **fields, "trials": list(command.trials)}


def failed_attempt(trial_id: str, failure: Failure) -> Event:
    """The fields of a failure's event."""
    fields = {"trial": trial_id, "kind": failure.kind, "message": failure.message, "step": failure.step}
    fields |= {"retried": not failure.final}
    return fields | ({"micro_batch": failure.micro_batch} if failure.micro_batch is not None else {})


def events_of(trials: Iterable[Trial]) -> list[Event]:
    """The events that ``trials`` show to have happened; reports are in the order of their time."""
    timed: list[tuple[float, int, int, Event]] = []
    now = 0.0
    for trial in trials:
        now = max(now, trial.reports[0].timestamp if trial.reports else now)
        suggested: Event = {"what": "suggested", "trial": trial.id, "config": trial.first_config}
        if trial.micro_batch is not None and not any(failure.micro_batch for failure in trial.failures):
            suggested["micro_batch"] = trial.micro_batch
        if trial.origin:
            suggested["origin"] = asdict(trial.origin)
        timed.append((now, 0, trial.number, suggested))
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


def ending(trial: Trial, scheduler: SchedulerSpec, audited_at: int | None) -> tuple[Status, str, int | None]:
    """Status, reason and rung of a trial that its scheduler ended at its latest report.

    ``audited_at``: as `tuner.search.state.SearchState.audited_at` answers for it.
    """
    name, max_t = scheduler.fidelity or ("training_iteration", None)
    reached = trial.reports[-1].metrics.get(name, trial.steps) if trial.reports else 0
    if max_t is not None and reached >= max_t:
        rung = audited_rung(scheduler, audited_at)
        audit = "" if rung is None else f"; the audit kept it at {rung}"
        return "completed", f"{name} reached max_t {max_t}{audit}", rung
    rung = _rung(scheduler, reached)
    return "stopped", f"stopped by the scheduler{f' at rung {rung}' if rung else ''}", rung


def audited_rung(scheduler: SchedulerSpec, audited_at: int | None) -> int | None:
    """The rung at which a completed trial would have been stopped; None for one that was not to be stopped."""
    return None if audited_at is None else _rung(scheduler, audited_at) or audited_at


def _rung(scheduler: SchedulerSpec, reached: float) -> int | None:
    return max((rung for rung in scheduler.rungs() if rung <= reached), default=None)
