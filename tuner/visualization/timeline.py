"""A search on the clock: when each report came, what had been spent by then, and when which trial ran."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from tuner.runs.events import Event
from tuner.runs.results import ResultSet
from tuner.search.emitted_events import known_events
from tuner.search.usage import unit_of, usage_of


@dataclass(frozen=True, slots=True)
class TimedReport:
    """A report, and where the search stood with it."""

    trial: str
    step: int
    seconds: float
    """Of the search, without the time between an interruption and its resumption; NaN if that is not known."""
    epochs: float
    """Spent over all trials, in units of the scheduler's ``time_attr``."""
    point: tuple[float, ...]
    """The values of the objectives, each to be made large."""
    is_feasible: bool = True
    """Whether it keeps the outcome constraints."""


@dataclass(slots=True)
class TrialSpan:
    """An uninterrupted stay of a trial on a worker."""

    trial: str
    begin: float
    """Seconds of the search."""
    end: float
    lane: int = 0
    """Number of the worker, from 0; Ray's own numbers are not known, and the lowest free one is taken."""


@dataclass
class Timeline:
    """What `chronicle` tells."""

    unit: str
    """The unit of epochs: the scheduler's ``time_attr``."""
    moments: list[TimedReport] = field(default_factory=list)
    stretches: list[TrialSpan] = field(default_factory=list)
    """In the order in which they began."""
    elapsed: float = 0.0
    """Seconds of the search so far."""

    @cached_property
    def incumbents(self) -> list[TimedReport]:
        """The feasible reports that were better than all before them, in the first objective."""
        found: list[TimedReport] = []
        for moment in self.moments:
            if moment.is_feasible and (not found or moment.point[0] > found[-1].point[0]):
                found.append(moment)
        return found

    @property
    def epochs(self) -> float:
        """Spent in all."""
        return self.moments[-1].epochs if self.moments else 0.0

    @property
    def is_whole(self) -> bool:
        """Whether all reports are known: of a run that lost them only the best are, and not when they came."""
        return not any(math.isnan(moment.seconds) for moment in self.moments)

    @property
    def lanes(self) -> int:
        """Workers that were seen to run a trial."""
        return 1 + max((stretch.lane for stretch in self.stretches), default=-1)


def chronicle(results: ResultSet) -> Timeline:
    """From the journal of a run; if there is none, from the times of its reports, which are whole seconds."""
    unit, usage, limits = unit_of(results), usage_of(results), results.outcome_constraints
    told = Timeline(unit)
    open_: dict[str, TrialSpan] = {}
    clock = SearchClock()
    for event in known_events(results):
        now = clock.at(event)
        told.elapsed = max(told.elapsed, now)
        trial_id = event.get("trial", "")
        match event["what"]:
            case "started":
                _close(open_, trial_id)  # the driver was killed while it ran
                told.stretches.append(open_.setdefault(trial_id, TrialSpan(trial_id, now, now)))
            case "reported":
                if all(metric in event["metrics"] for metric in results.compared_metrics):
                    usage.apply(event)
                    point = tuple(o.sign * float(event["metrics"][o.metric]) for o in results.objectives)
                    if all(map(math.isfinite, point)):
                        kept = (not limit.violation(float(event["metrics"][limit.metric])) for limit in limits)
                        told.moments.append(TimedReport(trial_id, event["step"], now, usage.epochs, point, all(kept)))
                if math.isnan(now):
                    continue
                if trial_id not in open_:  # tables do not tell when a trial started
                    open_[trial_id] = TrialSpan(trial_id, max(0.0, now - event["seconds"]), now)
                    told.stretches.append(open_[trial_id])
                open_[trial_id].end = now
            case "paused" | "ended" | "failed attempt":
                _close(open_, trial_id, now if "elapsed" in event else None)
    for stretch in open_.values():
        trial = results.get(stretch.trial)
        stretch.end = told.elapsed if trial is not None and trial.status == "running" else stretch.end
    told.stretches.sort(key=lambda stretch: stretch.begin)
    _assign_lanes(told.stretches)
    return told


class SearchClock:
    """Tells at which second of the search events happened, one event after the other."""

    def __init__(self) -> None:
        self._now, self._origin = 0.0, math.nan

    def at(self, event: Event) -> float:
        """The second of ``event``; NaN if it is not known. Events of tables have the time of day instead."""
        if "elapsed" in event:
            self._now = event["elapsed"]
        elif math.isnan(event.get("timestamp", 0.0)):
            return math.nan
        elif "timestamp" in event:
            start = event["timestamp"] - event["seconds"]
            self._origin = start if math.isnan(self._origin) else self._origin
            self._now = max(self._now, event["timestamp"] - self._origin)
        return self._now


def _close(open_: dict[str, TrialSpan], trial_id: str, now: float | None = None) -> None:
    stretch = open_.pop(trial_id, None)
    if stretch is not None and now is not None:
        stretch.end = now


def _assign_lanes(stretches: list[TrialSpan]) -> None:
    free_from: list[float] = []
    for stretch in stretches:
        lane = next((i for i, until in enumerate(free_from) if until <= stretch.begin), len(free_from))
        if lane == len(free_from):
            free_from.append(stretch.end)
        else:
            free_from[lane] = stretch.end
        stretch.lane = lane
