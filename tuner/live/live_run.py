"""A run as the live page has it: read from its journal as this grows, with what has changed since any event of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from tuner.errors import EnvironmentFailure
from tuner.live.curve import Curve, points_of
from tuner.runs.events import Event
from tuner.runs.history import EventApplier, reopened_by, set_ending
from tuner.runs.journal import JournalReader
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.search.emitted_events import one_by_one
from tuner.search.usage import UsageTracker, unit_of, usage_of
from tuner.spec.configuration import flat
from tuner.storage.folder import RunFolder
from tuner.visualization.timeline import SearchClock

MOST_FAILURES = 500
"""Failed attempts that are kept: the latest."""

MOST_COMMANDS = 500
"""Commands that are kept: the latest."""

_BUSY_POINTS = 400


@dataclass
class Line:
    """What the page has of a trial besides the trial itself."""

    trial: Trial
    curve: Curve
    changed: int
    """The latest event that told of the trial."""
    configured: int
    """The event that gave it its present configuration."""
    best: Report | None = None
    best_at: float = 0.0
    """Seconds of the search at its best report."""


@dataclass
class Improvement:
    """A report that was better than all before it."""

    event: int
    seconds: float
    """Of the search."""
    value: float
    trial: int
    """Its number."""


@dataclass
class Told:
    """An event that the page lists."""

    event: int
    fields: Event
    seconds: float
    """Of the search."""


@dataclass
class LiveRun:
    """Reads the journal of a run on. Not to be used by two threads at once."""

    folder: RunFolder
    lines: dict[str, Line] = field(default_factory=dict)
    """By trial; those that changed last come last."""
    improvements: list[Improvement] = field(default_factory=list)
    failures: list[Told] = field(default_factory=list)
    commands: list[Told] = field(default_factory=list)
    parameters: dict[str, int] = field(default_factory=dict)
    """Names of parameters, each with its column."""
    busy: Curve = field(default_factory=lambda: Curve(_BUSY_POINTS))
    """Trials that hold resources, over the seconds of the search."""
    described: int = 0
    """The event that changed the experiment, or the parameters, last."""
    elapsed: float = 0.0
    telling: str = ""
    """Stands for the journal: another one, also one written anew in its place, has another."""

    def __post_init__(self) -> None:
        self._reader = JournalReader(self.folder)
        self._history = EventApplier(ResultSet(self.folder, {}, {}))
        self._held: set[str] = set()
        self._clock = SearchClock()
        self.usage = UsageTracker(())

    @property
    def results(self) -> ResultSet:
        """All that the journal tells."""
        return self._history.results

    @property
    def number(self) -> int:
        """Of the latest event that was read."""
        return self._reader.number

    @property
    def damage(self) -> str:
        """The events of the journal that are lost, in words; empty if none is."""
        return self._reader.damage

    def read(self) -> bool:
        """Takes in what is new; whether there was something.

        Raises OSError, and EnvironmentFailure if the journal cannot be read or tells no experiment.
        """
        last: Event = {"what": ""}
        for last in one_by_one(self._taken_in()):
            self._tell(last)
        if not self.results.spec:
            raise EnvironmentFailure(f"{self.folder.location}: the journal does not tell an experiment yet")
        if last["what"]:
            set_ending(self.results, last)
        return bool(last["what"])

    def _taken_in(self) -> Iterator[Event]:
        for event in self._reader.new():
            if event["what"] == "began":
                self._begin(event)
            self._history.apply(event)
            yield event

    def _begin(self, event: Event) -> None:
        for part in (self.lines, self.improvements, self.failures, self.commands, self.parameters, self._held):
            part.clear()
        self.busy, self.elapsed, self.described = Curve(_BUSY_POINTS), 0.0, event["n"]
        self._clock = SearchClock()
        told = repr((event["n"], event["provenance"].get("id"), event["spec"]))
        self.telling = f"{crc32(told.encode(errors='backslashreplace')):08x}"
        self._history.results.provenance |= {"notices": event["provenance"].get("notices") or []}

    def _tell(self, event: Event) -> None:
        """Takes account of one event, which the results hold already."""
        what, number = event["what"], event["n"]
        if what == "began":
            self.usage = usage_of(self.results)
        self.usage.apply(event)
        now = self._clock.at(event)
        self.elapsed = self.elapsed if math.isnan(now) else max(self.elapsed, now)
        match what:
            case "extended":
                self.described = number
            case "failed attempt":
                self._keep(self.failures, event, MOST_FAILURES)
            case "commanded":
                self._keep(self.commands, event, MOST_COMMANDS)
                if event.get("changed"):
                    self.described = number
        for trial_id in (event.get("trial", ""), *reopened_by(event)):
            trial = self.results.get(trial_id)
            if trial is not None:
                self._touch(trial, event)
        self._count_busy(event)

    def _keep(self, kept: list[Told], event: Event, most: int) -> None:
        kept.append(Told(event["n"], event, self.elapsed))
        del kept[:-most]

    def _touch(self, trial: Trial, event: Event) -> None:
        number = event["n"]
        line = self.lines.pop(trial.id, None)
        if line is None:
            line = Line(trial, Curve(points_of(trial.number)), number, number)
        self.lines[trial.id] = line
        line.changed = number
        if event["what"] == "suggested" or (trial.segments and trial.best is not line.best):
            line.configured = number
            self._name(trial.config, number)
        if event["what"] == "reported":
            self._plot(line, event)
        if trial.best is not line.best:
            line.best, line.best_at = trial.best, self.elapsed

    def _name(self, config: dict[str, Any], number: int) -> None:
        """New parameters get columns."""
        for name, _ in flat(config):
            if name not in self.parameters:
                self.parameters[name] = len(self.parameters)
                self.described = number

    def _plot(self, line: Line, event: Event) -> None:
        results, number, trial = self.results, event["n"], line.trial
        metrics = event["metrics"]
        told = Report(trial.id, event["step"], event["seconds"], event["timestamp"], metrics, event["checkpoint"])
        value = results.value(told)
        line.curve.put(number, event["step"], told.progress(unit_of(results)), _short(value))
        better = not self.improvements or results.better(value, self.improvements[-1].value)
        if better and math.isfinite(value) and results.is_feasible(told):
            self.improvements.append(Improvement(number, self.elapsed, value, trial.number))

    def _count_busy(self, event: Event) -> None:
        before = len(self._held)
        match event["what"]:
            case "started":
                self._held.add(event["trial"])
            case "paused" | "ended" | "failed attempt":
                self._held.discard(event["trial"])
            case "left":
                self._held.clear()
        if len(self._held) != before:
            self.busy.put(event["n"], event["n"], _short(self.elapsed), float(len(self._held)))


def _short(value: float) -> float | None:
    """With as many digits as a picture shows; None if it is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
