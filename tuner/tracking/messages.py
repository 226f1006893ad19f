"""The messages to people about a running search: which events are worth one, and their texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from tuner.experiment.notify import Notify, Occasion
from tuner.experiment.spec import Budget
from tuner.runs.diagnose import held_by_trial, live_status
from tuner.runs.events import Event
from tuner.runs.feasibility import no_winner
from tuner.runs.results import ResultSet, how_to_continue, why_and_remedy
from tuner.search.usage import usage_of
from tuner.spec.quantities import counted, format_duration
from tuner.spec.values import metrics_line

_NEARLY = 0.9
"""The share of a limit of the budget that is worth a message."""

_NAMED = 3
"""So many failed trials are named in one message."""


@dataclass(frozen=True)
class Message:
    """What a person or a program gets."""

    occasion: Occasion | Literal["test"]
    text: str
    """One line for a person."""
    fields: dict[str, Any] = field(default_factory=dict)
    """What a program reads beside the text."""

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {"event": self.occasion, "text": self.text, **self.fields}


class Watch:
    """Takes in the events of a search, and gives the messages that are due. Its caller has the clock."""

    def __init__(self, options: Notify, results: ResultSet, now: float, before: Iterable[Event] = ()) -> None:
        """``results`` and their events ``before`` are not news; ``now``: seconds on any clock that does not go back."""
        self._options = options
        self._usage, self._elapsed = usage_of(results), 0.0
        for event in before:
            self._count(event)
        self._last_event = now
        self._is_stalled = False
        self._has_news = False
        """Whether anything has happened since `due` was called last."""
        self._lead = _lead(results)
        self._may_have_new_lead = False
        self._failed: dict[str, None] = {}
        """Trials that are in no message yet; the first events may come twice."""
        self._not_before: dict[Occasion, float] = {}
        self._told_limits = {name for name, _ in self._nearly_used(results)}

    def saw(self, event: Event, now: float) -> None:
        """An event of the journal, which the results have taken in."""
        self._last_event, self._is_stalled, self._has_news = now, False, True
        self._count(event)
        if event["what"] == "reported":
            self._may_have_new_lead = True
        if event["what"] == "ended" and event["status"] == "failed":
            self._failed[event["trial"]] = None

    def _count(self, event: Event) -> None:
        self._usage.apply(event)
        self._elapsed = event.get("elapsed", self._elapsed)

    def due(self, results: ResultSet, now: float) -> list[Message]:
        """What is to be sent now."""
        found: list[Message] = []
        if self._may_have_new_lead and self._is_due("best", now):
            self._may_have_new_lead = False
            if (lead := _lead(results)) != self._lead:
                self._lead = lead
                self._not_before["best"] = now + self._options.every
                found.append(self._message(results, "best", f"new best: {_best(results)}"))
        if self._failed and self._is_due("failures", now):
            self._not_before["failures"] = now + self._options.every
            found.append(self._message(results, "failures", self._failures(results)))
        if self._has_news:
            self._has_news = False
            new = [(name, used) for name, used in self._nearly_used(results) if name not in self._told_limits]
            self._told_limits.update(name for name, _ in new)
            found += [self._message(results, "budget", f"{used} are used") for _, used in new]
        still = not self._is_stalled and not results.is_paused
        if still and now - self._last_event >= self._options.stalled_after:
            self._is_stalled = True
            found.append(self._message(results, "stalled", self._stall(results)))
        return [message for message in found if message.occasion in self._options.on]

    def end(self, results: ResultSet) -> list[Message]:
        """The last ones. ``results``: read anew from the run folder, when no process searches any more."""
        found: list[Message] = []
        if self._failed and "failures" in self._options.on:
            found.append(self._message(results, "failures", self._failures(results)))
        if "end" in self._options.on:
            found.append(self._message(results, "end", _ending(results)))
        return found

    def _is_due(self, occasion: Occasion, now: float) -> bool:
        return now >= self._not_before.get(occasion, now)

    def _failures(self, results: ResultSet) -> str:
        trials = [trial for name in self._failed if (trial := results.get(name))]
        self._failed = {}
        named = "; ".join(f"trial {trial.label}: {trial.reason}" for trial in trials[:_NAMED])
        more = f"; and {len(trials) - _NAMED} more" if len(trials) > _NAMED else ""
        so_far = f"{results.count('failed')} of {counted(len(results.trials), 'trial')} so far"
        return f"{counted(len(trials), 'trial')} failed ({so_far}): {named}{more}"

    def _stall(self, results: ResultSet) -> str:
        running = [trial.label for trial in results.trials if trial.status == "running"]
        since = format_duration(self._options.stalled_after)
        trials = f"running: {', '.join(running[:8])}{' …' if len(running) > 8 else ''}" if running else "no trial runs"
        return (
            f"nothing has happened for {since} ({trials}); to see why: python -m tuner status {results.folder.quoted}"
        )

    def _nearly_used(self, results: ResultSet) -> list[tuple[str, str]]:
        """The limits of which nine tenths are used and something is left, each with how much that is."""
        limits = Budget.model_validate(results.section("budget"))
        found: list[tuple[str, float, float, str]] = []
        if limits.trials is not None:
            ended = self._usage.ended
            found.append(("trials", ended, limits.trials, f"{ended} of {counted(limits.trials, 'trial')}"))
        if limits.epochs is not None:
            epochs = self._usage.epochs
            found.append(("epochs", epochs, limits.epochs, f"{epochs:,.0f} of {counted(limits.epochs, 'epoch')}"))
        if limits.wall_clock is not None:
            used = f"{format_duration(self._elapsed)} of {format_duration(limits.wall_clock)}"
            found.append(("wall_clock", self._elapsed, limits.wall_clock, used))
        if limits.gpu_hours is not None or limits.cost is not None:
            hours = self._usage.held / 3600 * held_by_trial(live_status(results)).get("GPU", 0.0)
            if limits.gpu_hours is not None:
                found.append(("gpu_hours", hours, limits.gpu_hours, f"{hours:.3g} of {limits.gpu_hours:g} GPU hours"))
            if limits.cost is not None:
                price = hours * limits.cost.per_gpu_hour
                found.append(("cost", price, limits.cost.max, f"{price:.3g} of a cost of {limits.cost.max:g}"))
        return [(name, f"budget.{name}: {words}") for name, used, most, words in found if _NEARLY * most <= used < most]

    def _message(self, results: ResultSet, occasion: Occasion, text: str) -> Message:
        best = results.best
        fields: dict[str, Any] = {
            "run": results.name,
            "folder": results.folder.location,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "trials": dict(Counter(trial.status for trial in results.trials)),
            "best": None,
        }
        if best is not None and best.best is not None:
            fields["best"] = {
                "trial": best.id,
                "step": best.best.step,
                "values": results.values(best.best),
                "config": best.config,
            }
        return Message(occasion, f"{results.name}: {text}", fields)


def _lead(results: ResultSet) -> frozenset[tuple[float, ...]]:
    """What changes with a new best trial, or a new point on the front."""
    return frozenset(results.point(trial.best) for trial in results.front if trial.best)


def _best(results: ResultSet) -> str:
    """The best trial and what it reached; why there is none."""
    best = results.best
    if best is None or best.best is None:
        return no_winner(results) or "no trial has reported"
    front = f"{counted(len(results.front), 'trial')} on the front, first of them " if results.has_front else ""
    return f"{front}trial {best.label} with {metrics_line(results.values(best.best))} at step {best.best.step}"


def _ending(results: ResultSet) -> str:
    """How the search ended, and what it found."""
    statuses = Counter(trial.status for trial in results.trials)
    counts = ", ".join(f"{count} {status}" for status, count in statuses.items())
    trials = f"{counted(len(results.trials), 'trial')} ({counts})"
    found = f"{trials}; best: {_best(results)}" if statuses else "no trial began"
    match results.provenance.get("interrupted"):
        case False:
            why = results.provenance.get("ended_by")
            return f"the search has ended{f' ({why})' if why else ''}: {found}"
        case True:
            return f"the search was interrupted{why_and_remedy(results)}; so far {found}"
    return f"the process of the search is gone; to continue: {how_to_continue(results)}; so far {found}"
