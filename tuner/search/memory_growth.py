"""Notices that the memory of a trial grows from report to report, as where a training keeps what it does not need.

Ordinary trainings grow too: at their first reports, where libraries, caches and allocators fill up, ever more slowly;
in steps, as at an evaluation; up and down, as the garbage collector runs. None of that is a rise of about the same size
at each of many reports in a row.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from tuner.runs.trial import Report, Trial

WARM_UP = 2
"""Reports after the start of a trial's process that do not count."""
RISES = 6
"""Rises in a row that it takes."""
LEAST_SHARE = 0.25
"""Of the mean rise: each must have as much."""
STEADY = 0.5
"""Of the mean rise since the warm-up: the latest `RISES` must have as much on average, else it comes to an end."""
GROWN_SHARE, GROWN_GIB = 0.10, 0.0625
"""Growth since the warm-up that it takes: this share of what was held then, and as many GiB."""

GROWS = " memory grows by "
"""In the notice, by which a resumed search knows that it was given."""

_KEPT = (
    "look for tensors that are kept from step to step: a loss that is added up or listed with its graph (use "
    "loss.item()), or outputs that are collected without .detach()"
)


@dataclass
class _Course:
    """The memory of one kind at the reports of a trial, since its process started it."""

    number: int = 0
    first: float = 0.0
    """At the end of the warm-up."""
    latest: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=RISES + 1))
    """Progress and GiB at each of the last reports."""

    def add(self, progress: float, held: float) -> None:
        self.number += 1
        if self.number <= WARM_UP:
            return
        if not self.latest:
            self.first = held
        self.latest.append((progress, held))

    @property
    def grows(self) -> bool:
        if len(self.latest) <= RISES:
            return False
        values = [held for _, held in self.latest]
        rises = [after - before for before, after in pairwise(values)]
        mean, grown = sum(rises) / RISES, values[-1] - self.first
        since_warm_up = grown / (self.number - WARM_UP - 1)
        return (
            mean > 0
            and min(rises) >= LEAST_SHARE * mean
            and mean >= STEADY * since_warm_up
            and grown >= max(GROWN_SHARE * self.first, GROWN_GIB)
        )


class MemoryGrowth:
    """Watches the reports of all trials, and gives notice once a run."""

    def __init__(self, time_attr: str, known: list[str]) -> None:
        """``time_attr``: of the scheduler, empty where it has none. ``known``: the notices of the run so far."""
        self._unit = time_attr if time_attr not in ("", "training_iteration") else "epoch"
        self._has_noticed = any(GROWS in notice for notice in known)
        self._courses: dict[str, tuple[_Course, _Course]] = {}
        """Of each trial that runs: GPU, host."""

    def started(self, trial_id: str) -> None:
        """Its process starts it, or continues it from a checkpoint: what it needs comes anew."""
        self._courses[trial_id] = _Course(), _Course()

    def ended(self, trial_id: str) -> None:
        """It reports no more."""
        self._courses.pop(trial_id, None)

    def reported(self, trial: Trial, report: Report) -> str:
        """What the user must know; empty if nothing, or if it was given before."""
        told = report.consumption
        if self._has_noticed or told is None:
            return ""
        gpu, host = self._courses.setdefault(trial.id, (_Course(), _Course()))
        for name, course, held in (("GPU", gpu, told.gpu_gib), ("host", host, told.host_gib)):
            if held is None:
                continue
            course.add(report.progress(self._unit), held)
            if course.grows:
                self._has_noticed = True
                return self._notice(trial, report, name, course)
        return ""

    def _notice(self, trial: Trial, report: Report, name: str, course: _Course) -> str:
        (begun, before), (now, held) = course.latest[0], course.latest[-1]
        is_timed = math.isfinite(report.number(self._unit)) and now > begun
        unit, passed = (self._unit, now - begun) if is_timed else ("report", RISES)
        amount = _size((held - before) / passed)
        return (
            f"trial {trial.label}: {name}{GROWS}{amount} per {unit} ({_size(course.first)} after its warm-up, "
            f"{_size(held)} at report {report.step}): {_KEPT}"
        )


def _size(gib: float) -> str:
    return f"{gib:.2g} GiB" if gib >= 0.1 else f"{1024 * gib:.0f} MiB"
