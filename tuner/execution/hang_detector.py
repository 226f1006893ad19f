"""Finds trials that hang, has them write where, and kills them.

A process in which Python code waits for ever cannot be asked over Ray: its one thread for tasks waits too. So every
trial's process answers a signal with the stacks of all its threads (`tuner.execution.stacks`). Then Ray kills it, and
what follows is as of any process that died.

``hang_after: auto`` knows what is usual: for a trial that has reported three times its own intervals, before that the
start-ups and first intervals of the other trials. The first trials of a search have nothing but a cap.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tuner.execution.stacks import ask_for_stacks
from tuner.spec.quantities import format_duration

FACTOR = 10
"""``hang_after: auto`` is so many times a trial's median time between reports."""
LEAST_S = 60.0
"""``hang_after: auto`` is at least so long."""
FIRST_REPORT = 3
"""The report of a trial from which on ``auto`` judges it by its own intervals."""
LEAST_BEFORE_S = 600.0
"""Before that ``auto`` is at least so long: a first epoch may compile, fill caches or download."""
FIRST_TRIALS_S = 3600.0
"""``auto`` while no trial of the search has come so far yet."""
LONGEST_TICK_S = 5.0
"""More than this between two looks is time in which the driver itself stood still: no trial is blamed for it."""


@dataclass
class _Attempt:
    """What is known of a trial and its present attempt."""

    step: int = 0
    """The attempt's latest report, counted over restarts."""
    since: float = 0.0
    """When it started or reported last."""
    reported: bool = False
    """Whether this attempt has reported."""
    start_up: float | None = None
    """Time to the first report, of an attempt that made one."""
    intervals: deque[float] = field(default_factory=lambda: deque(maxlen=101))
    """Times between reports, over all attempts."""


class Limit(NamedTuple):
    """How long a trial may be silent."""

    seconds: float
    why: str
    """The rule that says so, in words."""


class HangDetector:
    """How far running trials have come, and which of them have been silent for too long."""

    def __init__(
        self,
        hang_after: float | Literal["auto"] | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        may_wait: bool = False,
    ) -> None:
        """``may_wait``: whether a trial may wait for others before it trains, so that silence tells nothing then."""
        self._hang_after = hang_after
        self._may_wait = may_wait
        self._clock = clock
        self._last = clock()
        self._now = 0.0
        """Time that the driver was at work."""
        self._attempts: dict[str, _Attempt] = {}
        self._start_ups: deque[float] = deque(maxlen=101)
        """Of all trials: times to the first report of an attempt."""
        self._first_intervals: deque[float] = deque(maxlen=101)
        """Of all trials: times between their first `FIRST_REPORT` reports."""

    def tick(self) -> None:
        """Lets time pass; call it often."""
        now = self._clock()
        self._now += min(now - self._last, LONGEST_TICK_S)
        self._last = now

    def skip(self) -> None:
        """Lets no time pass since the call before."""
        self._last = self._clock()

    def started(self, trial_id: str, step: int) -> None:
        """An attempt starts, from the checkpoint of report ``step`` (0: from the beginning)."""
        attempt = self._attempts.setdefault(trial_id, _Attempt())
        attempt.step, attempt.since, attempt.reported = step, self._now, False

    def reported(self, trial_id: str, step: int) -> None:
        """The attempt made its report ``step``."""
        attempt = self._attempts[trial_id]
        took = self._now - attempt.since
        if attempt.reported:
            if len(attempt.intervals) < FIRST_REPORT - 1:
                self._first_intervals.append(took)
            attempt.intervals.append(took)
        else:
            self._start_ups.append(took)
            attempt.start_up = took
        attempt.step, attempt.since, attempt.reported = step, self._now, True

    def ended(self, trial_id: str) -> None:
        """The trial will not run any more."""
        self._attempts.pop(trial_id, None)

    @property
    def least(self) -> float:
        """Seconds of silence for which no trial is ever killed."""
        return LEAST_S if self._hang_after == "auto" else self._hang_after or math.inf

    def step(self, trial_id: str) -> int:
        """The latest report of the trial's latest attempt."""
        return self._attempts[trial_id].step if trial_id in self._attempts else 0

    def limit(self, trial_id: str) -> Limit | None:
        """For how long the trial may be silent; None: for ever."""
        attempt = self._attempts[trial_id]
        if self._hang_after is None or (self._may_wait and not attempt.reported):
            return None
        if self._hang_after != "auto":
            return Limit(self._hang_after, f"failures.hang_after is {format_duration(self._hang_after)}")
        if len(attempt.intervals) < FIRST_REPORT - 1:
            return self._limit_by_others(attempt)
        usual = statistics.median(attempt.intervals)
        if not attempt.reported:  # it is starting up, which takes its own time
            usual = max(usual, attempt.start_up or 0.0)
        if FACTOR * usual <= LEAST_S:
            return _auto(LEAST_S, " for trials that report so often")
        return _auto(FACTOR * usual, f", {FACTOR} times what this trial needs")

    def _limit_by_others(self, attempt: _Attempt) -> Limit:
        """Of an attempt whose trial has not shown what is usual for it."""
        before = self._first_intervals if attempt.reported else self._start_ups
        what = "between its first reports" if attempt.reported else "to its first report"
        if not before:
            longer = "set failures.hang_after where a trial may be silent for longer"
            return _auto(FIRST_TRIALS_S, f" {what} while no trial has come further; {longer}")
        if FACTOR * max(before) <= LEAST_BEFORE_S:
            return _auto(LEAST_BEFORE_S, f" {what} at least")
        return _auto(FACTOR * max(before), f", {FACTOR} times the longest that a trial of this search took {what}")

    def hung(self, trial_ids: Iterable[str]) -> dict[str, str]:
        """Those of the running trials that have been silent for too long, with the reason to kill each."""
        found = {}
        for trial_id in trial_ids:
            attempt = self._attempts.get(trial_id)
            if attempt is None or (self._hang_after == "auto" and self._now - attempt.since <= LEAST_S):
                continue  # asked at every event of every trial: no median for those that have just reported
            limit = self.limit(trial_id)
            if limit is not None and self._now - attempt.since > limit.seconds:
                found[trial_id] = f"no report for {format_duration(self._now - attempt.since)}; {limit.why}"
        return found


def _auto(seconds: float, reason: str) -> Limit:
    return Limit(seconds, f"failures.hang_after auto is {format_duration(seconds)}{reason}")


class HungTrialKiller:
    """Kills the processes of trials that hang, each some time after it was asked for its stacks."""

    def __init__(self, watch: HangDetector, clock: Callable[[], float] = time.monotonic) -> None:
        self._detector = watch
        self._clock = clock
        self._sentenced: dict[str, tuple[Any, float, str]] = {}
        """Of trials that hang: process, when to kill it, why."""
        self._killed: dict[str, str] = {}

    def look(self, running: dict[str, Any]) -> None:
        """``running``: the Ray actors of the running trials by trial."""
        import ray

        self._detector.tick()
        hung = self._detector.hung(running)
        self._sentenced = {trial: sentence for trial, sentence in self._sentenced.items() if trial in hung}
        for trial, why in hung.items():
            actor, now = running[trial], self._clock()
            if actor is None or trial in self._killed:
                continue
            if trial not in self._sentenced or self._sentenced[trial][0] != actor:
                self._sentenced[trial] = (actor, now + ask_for_stacks(actor._actor_id.hex()), why)
            elif now >= self._sentenced[trial][1]:
                self._killed[trial] = self._sentenced.pop(trial)[2]
                ray.kill(actor)

    def killed(self, trial_id: str) -> str:
        """Why the trial's process was killed here; empty if it was not. Asked once, when it is dead."""
        self._sentenced.pop(trial_id, None)
        return self._killed.pop(trial_id, "")
