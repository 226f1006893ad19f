"""The figures of runs that are worth a point in a time series, read from their journals as these grow."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, get_args

from tuner.errors import EnvironmentFailure
from tuner.runs.diagnose import RunState, held_by_trial, live_status, run_state
from tuner.runs.events import Event
from tuner.runs.failure import FailureKind
from tuner.runs.history import EventApplier, set_ending
from tuner.runs.journal import JOURNAL, JournalReader
from tuner.runs.results import LIVE, ResultSet
from tuner.search.emitted_events import one_by_one
from tuner.search.usage import UsageTracker, unit_of, usage_of
from tuner.storage.folder import RunFolder
from tuner.visualization.text_tables import saved

KEPT_S = 3600.0
"""A run is followed until so long after its last sign of life."""

MOST_RUNS = 100
"""So many runs are followed at once: those with the latest signs of life."""

OTHER = "other"
"""The kind of a failure whose kind another version of tuner, or a damaged journal, gave."""


@dataclass(frozen=True)
class RunFigures:
    """How a run stands."""

    run: str
    state: RunState
    best: Mapping[tuple[str, str], float]
    """By metric and mode of each objective; with several objectives the best on the front. Empty if nothing counts."""
    trials: Mapping[str, int]
    """By status."""
    reports: int
    slots: int
    busy_slots: int
    slot_limit: int | None
    """At most so many of the slots may be busy, by a command or a share of the cluster."""
    paused: bool
    unit: str
    """Of `epochs`."""
    epochs: float
    saved_epochs: float
    """That early stopping has saved, as the report page counts them."""
    saved_seconds: float
    """Of trial time, as the report page has it."""
    trial_seconds: float
    """For which processes held the resources of a trial."""
    gpu_seconds: float
    wall_clock_seconds: float
    failures: Mapping[str, int]
    """Failed attempts by kind."""
    last_event: float
    """Unix time, in seconds."""


class FollowedRun:
    """Reads the journal of a run on, and adds up."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._reader = JournalReader(folder)
        self._history = EventApplier(ResultSet(folder, {}, {}))
        self._usage = UsageTracker(())
        self._elapsed = 0.0
        self._per_trial: Mapping[str, float] = {}
        """What a trial holds, as live.json told when it could be read last: a counter never falls."""

    def figures(self, last_event: float) -> RunFigures:
        """After reading what is new. Raises OSError, and EnvironmentFailure if the journal tells nothing."""
        results = self._history.results
        last: Event = {"what": ""}
        for last in one_by_one(self._taken_in()):
            if last["what"] == "began":
                self._usage = usage_of(results)
            self._usage.apply(last)
            self._elapsed = last.get("elapsed", self._elapsed)
        if not results.spec:
            raise EnvironmentFailure(f"{self._folder.location}: the journal does not tell an experiment")
        if last["what"]:
            set_ending(results, last)
        return self._read(last_event)

    def _taken_in(self) -> Iterator[Event]:
        for event in self._reader.new():
            self._history.apply(event)
            yield event

    def _read(self, last_event: float) -> RunFigures:
        results, usage = self._history.results, self._usage
        live, (state, _), saving = live_status(results), run_state(results), saved(results)
        is_running = state == "running"
        self._per_trial = held_by_trial(live) or self._per_trial
        busy = sum(trial["state"] in ("starting", "running") for trial in live.get("trials", {}).values())
        return RunFigures(
            run=results.name,
            state=state,
            best=_best(results),
            trials=Counter(trial.status for trial in results.trials),
            reports=sum(len(trial.reports) for trial in results.trials),
            slots=live.get("slots", 0) if is_running else 0,
            busy_slots=busy if is_running else 0,
            slot_limit=live.get("limit") if is_running else None,
            paused=is_running and live.get("paused", False),
            unit=unit_of(results),
            epochs=usage.epochs,
            saved_epochs=float(saving.full - saving.spent) if saving else 0.0,
            saved_seconds=saving.seconds if saving else 0.0,
            trial_seconds=usage.held,
            gpu_seconds=usage.held * self._per_trial.get("GPU", 0.0),
            wall_clock_seconds=self._elapsed,
            failures=Counter(_kind(failure.kind) for trial in results.trials for failure in trial.failures),
            last_event=last_event,
        )


def _kind(kind: str) -> str:
    return kind if kind in get_args(FailureKind) else OTHER


def _best(results: ResultSet) -> dict[tuple[str, str], float]:
    points = [results.values(trial.best) for trial in results.front if trial.best]
    if not points:
        return {}
    return {
        (one.metric, one.mode): max((point[one.metric] for point in points), key=lambda value: one.sign * value)
        for one in results.objectives
    }


class FollowedRuns:
    """The runs of a storage that run, or ended in the last hour. Each journal is read on from where it was read to.

    Several threads may call it.
    """

    def __init__(self) -> None:
        self.latest: Sequence[RunFigures] = ()
        """What was read last."""
        self._followed: dict[str, FollowedRun] = {}
        self._one_at_a_time = threading.Lock()

    def read(self, folders: Iterable[RunFolder]) -> tuple[Sequence[RunFigures], int]:
        """How each of the runs in ``folders`` stands, and how many of them cannot be read."""
        with self._one_at_a_time:
            self.latest, unreadable = self._read(folders)
            return self.latest, unreadable

    def _read(self, folders: Iterable[RunFolder]) -> tuple[list[RunFigures], int]:
        recent: list[tuple[float, float, RunFolder]] = []
        unreadable = 0
        for folder in folders:
            try:
                journal, live = _signs_of_life(folder)
            except OSError:
                unreadable += 1
                continue
            if time.time() - max(journal, live) <= KEPT_S:
                recent.append((max(journal, live), journal, folder))
        recent.sort(key=lambda one: one[0], reverse=True)
        kept = {folder.location: (journal, folder) for _, journal, folder in recent[:MOST_RUNS]}
        self._followed = {name: run for name, run in self._followed.items() if name in kept}
        found = []
        for name, (journal, folder) in kept.items():
            try:
                found.append(self._followed.setdefault(name, FollowedRun(folder)).figures(journal))
            except (OSError, EnvironmentFailure):
                unreadable += 1
        return found, unreadable


def _signs_of_life(folder: RunFolder) -> tuple[float, float]:
    """When the journal and live.json were last written, as Unix times; 0 if they are not there."""
    from pyarrow.fs import FileSelector

    system = folder.filesystem
    file, live = system.get_file_info([(folder / f"{JOURNAL}.jsonl").path, (folder / LIVE).path])
    segments = system.get_file_info(FileSelector((folder / JOURNAL).path, allow_not_found=True))
    return max(map(_written, chain([file], segments))), _written(live)


def _written(info: Any) -> float:
    return (info.mtime_ns or 0) / 1e9
