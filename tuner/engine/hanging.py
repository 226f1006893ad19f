"""Finds trials that hang, has them write where, and kills them.

A process in which Python code waits for ever cannot be asked over Ray: its one thread for tasks waits too. So every
trial's process answers a signal with the stacks of all its threads (`answer_signal`), which works as long as it lives,
whatever holds Python's lock. Then Ray kills it, and what follows is as of any process that died.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import signal
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from tuner.spec.quantities import duration

FACTOR = 10
"""``hang_after: auto`` is so many times a trial's median time between reports."""
LEAST_S = 60.0
"""``hang_after: auto`` is at least so long."""
FIRST_REPORT = 3
"""The report of a trial from which on ``auto`` judges it."""
LONGEST_TICK_S = 5.0
"""More than this between two looks is time in which the driver itself stood still: no trial is blamed for it."""
STACK_HERE_S, STACK_ELSEWHERE_S = 1.0, 15.0
"""Time for the stacks to be written; on another node a process has to start first, which sends the signal."""


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


class Watch:
    """How far running trials have come, and which of them have been silent for too long."""

    def __init__(self, hang_after: float | Literal["auto"] | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._hang_after = hang_after
        self._clock = clock
        self._last = clock()
        self._now = 0.0
        """Time that the driver was at work."""
        self._attempts: dict[str, _Attempt] = {}

    def tick(self) -> None:
        """Lets time pass; call it often."""
        now = self._clock()
        self._now += min(now - self._last, LONGEST_TICK_S)
        self._last = now

    def started(self, trial_id: str, step: int) -> None:
        """An attempt starts, from the checkpoint of report ``step`` (0: from the beginning)."""
        attempt = self._attempts.setdefault(trial_id, _Attempt())
        attempt.step, attempt.since, attempt.reported = step, self._now, False

    def reported(self, trial_id: str, step: int) -> None:
        """The attempt made its report ``step``."""
        attempt = self._attempts[trial_id]
        took = self._now - attempt.since
        if attempt.reported:
            attempt.intervals.append(took)
        else:
            attempt.start_up = took
        attempt.step, attempt.since, attempt.reported = step, self._now, True

    @property
    def least(self) -> float:
        """Seconds of silence for which no trial is ever killed."""
        return LEAST_S if self._hang_after == "auto" else self._hang_after or math.inf

    def step(self, trial_id: str) -> int:
        """The latest report of the trial's latest attempt."""
        return self._attempts[trial_id].step if trial_id in self._attempts else 0

    def limit(self, trial_id: str) -> float | None:
        """Seconds for which the trial may be silent; None: for ever."""
        if self._hang_after != "auto":
            return self._hang_after
        attempt = self._attempts[trial_id]
        if len(attempt.intervals) < FIRST_REPORT - 1:
            return None
        usual = statistics.median(attempt.intervals)
        if not attempt.reported:  # it is starting up, which takes its own time
            usual = max(usual, attempt.start_up or 0.0)
        return max(LEAST_S, FACTOR * usual)

    def hung(self, trial_ids: Iterable[str]) -> dict[str, str]:
        """Those of the running trials that have been silent for too long, with the reason to kill each."""
        found = {}
        for trial_id in trial_ids:
            attempt = self._attempts.get(trial_id)
            if attempt is None or (self._hang_after == "auto" and self._now - attempt.since <= LEAST_S):
                continue  # asked at every event of every trial: no median for those that have just reported
            limit = self.limit(trial_id)
            if limit is not None and self._now - attempt.since > limit:
                found[trial_id] = f"no report for {duration(self._now - attempt.since)}; {self._rule(limit)}"
        return found

    def _rule(self, limit: float) -> str:
        if self._hang_after != "auto":
            return f"failures.hang_after is {duration(limit)}"
        if limit == LEAST_S:
            return f"failures.hang_after auto is {duration(limit)} for trials that report so often"
        return f"failures.hang_after auto is {duration(limit)}, {FACTOR} times what this trial needs"


class Executioner:
    """Kills the processes of trials that hang, each some time after it was asked for its stacks."""

    def __init__(self, watch: Watch, clock: Callable[[], float] = time.monotonic) -> None:
        self._watch = watch
        self._clock = clock
        self._sentenced: dict[str, tuple[Any, float, str]] = {}
        """Of trials that hang: process, when to kill it, why."""
        self._killed: dict[str, str] = {}

    def look(self, running: dict[str, Any]) -> None:
        """``running``: the Ray actors of the running trials by trial."""
        import ray

        self._watch.tick()
        hung = self._watch.hung(running)
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
        """Why the trial's process was killed here; empty where it was not. Asked once, when it is dead."""
        self._sentenced.pop(trial_id, None)
        return self._killed.pop(trial_id, "")


def answer_signal() -> None:
    """From now on this process answers SIGUSR1 with the stacks of its threads, on what is then its stderr."""
    if hasattr(faulthandler, "register"):  # not on Windows
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True, chain=False)


def ask_for_stacks(actor_id: str) -> float:
    """Signals the process of an actor, on whichever node it is; how long it may take until the stacks are written."""
    import ray

    node, pid = whereabouts(actor_id)
    if not pid or not hasattr(signal, "SIGUSR1"):
        return 0.0
    if node == ray.get_runtime_context().get_node_id():
        _signal(pid)
        return STACK_HERE_S
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    ray.remote(_signal).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote(pid)
    return STACK_ELSEWHERE_S


def whereabouts(actor_id: str) -> tuple[str, int]:
    """Node and process of an actor, also of one that has died; ("", 0) where Ray has forgotten it.

    From Ray's control store: the process itself may be beyond answering, and may not have reported yet.
    """
    from ray._private import state

    known = state.actors(actor_id) or {}
    return str(known.get("Address", {}).get("NodeID", "")), int(known.get("Pid", 0))


def death_of(actor_id: str) -> str:
    """What Ray's control store says of how an actor died; empty while it believes it alive."""
    from ray._private import state

    known = state.actors(actor_id) or {}
    return (str(known.get("DeathCause")) or "unknown") if known.get("State") == "DEAD" else ""


def _signal(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just died: Ray tells soon
        os.kill(pid, signal.SIGUSR1)
