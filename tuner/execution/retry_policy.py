"""Whether a trial that failed is tried again, and when failures end the search."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from ray.tune import Stopper

from tuner.execution.failure_classifier import PREEMPTED
from tuner.experiment.failures import Failures
from tuner.runs.failure import Failure, FailureKind, MemoryKind
from tuner.runs.trial import Trial
from tuner.search.control import SearchControl
from tuner.search.node_health import LOSSES
from tuner.search.usage import UsageTracker

MICRO_BATCH = "__micro_batch__"
"""Key of a Ray trial's configuration under which a reduced micro-batch travels to its process."""

MEMORY: tuple[MemoryKind, ...] = ("GPU memory", "host memory")
FIRST = 4
"""So many trials that fail alike are not chance: of a space in which a third of the configurations is impossible, the
first four are all so in 1 of 100 searches."""
FIRST_WAIT_S, LONGEST_WAIT_S = 30.0, 600.0
"""Before a trial that lost a second node after the same report is tried again; twice as long each time."""
COUNTED: tuple[FailureKind, ...] = ("exception", "data", "process died", "GPU", *MEMORY)
"""What uses up ``failures.retries``."""


@dataclass(frozen=True)
class RetryDecision:
    """What becomes of a trial."""

    action: Literal["retry", "stop", "fail"]
    micro_batch: int | None = None
    """With which it is tried again; None: as before."""


def decide_retry(
    rules: Failures,
    failure: Failure,
    before: Sequence[Failure],
    micro_batch: int | None,
    alone: bool = False,
    common: bool = False,
) -> RetryDecision:
    """What ``rules`` say to ``failure`` of a trial that failed ``before``, in order.

    ``micro_batch``: the one that the attempt had; None if the trainable declares none. ``alone``: whether the latest
    nodes that were lost had the trial on them, each one (`tuner.search.node_health`). ``common``: whether another trial
    failed alike on the only node, and none has reported.
    """
    retry, fail = RetryDecision("retry"), RetryDecision("fail")
    before = before[max((i + 1 for i, past in enumerate(before) if past.final), default=0) :]
    if failure.kind == "node lost":
        return fail if alone and len(_losses([*before, failure])) >= LOSSES else retry
    if failure.kind == "bad report":
        return fail
    if failure.kind == "NaN":
        return RetryDecision("stop") if rules.on_nan == "stop" and failure.step else fail
    if failure.kind == "hung":
        return retry if rules.retries and not any(f.kind == "hung" for f in before) else fail
    if failure.kind in MEMORY and rules.on_oom != "retry" and micro_batch is not None:
        if micro_batch > 1:
            return RetryDecision("retry", micro_batch // 2)
        if any(f.kind in MEMORY for f in _since_reduction(before)):  # the same again, and no way to need less
            return fail
    elif failure.kind == "GPU memory" and (
        never_fits(failure.message) or (before and (before[-1].kind, before[-1].step) == (failure.kind, failure.step))
    ):
        return fail
    if failure.kind == "exception" and (common or (before and before[-1] == failure)):  # it is the code
        return fail
    used = sum(f.kind in COUNTED and f.micro_batch is None for f in before)
    return retry if used < rules.retries else fail


_UNITS = {"bytes": 2.0**-30, "KiB": 2.0**-20, "MiB": 2.0**-10, "GiB": 1.0}


def _gib(message: str, words: str) -> float | None:
    """The size that follows ``words`` in torch's message, in GiB."""
    found = re.search(words + r" ([\d.]+) (bytes|[KMG]iB)", message)
    return float(found[1]) * _UNITS[found[2]] if found else None


def total_gib(message: str) -> float | None:
    """The GPU's memory, if it is a message of torch's that memory ran out."""
    return _gib(message, "total capacity of")


def never_fits(message: str) -> bool:
    """Whether torch says in its message that the process alone needs more than the GPU has."""
    wanted, total, own = _gib(message, "Tried to allocate"), total_gib(message), _gib(message, "this process has")
    return None not in (wanted, total, own) and own + wanted > total  # type: ignore[operator]


def back_off(failures: Sequence[Failure]) -> float:
    """Seconds until a trial that failed so, in order, is tried again: it waits if it lost two in a row."""
    again = len(_losses(failures)) - 1
    return min(FIRST_WAIT_S * 2 ** (again - 1), LONGEST_WAIT_S) if again > 0 else 0.0


def _losses(failures: Sequence[Failure]) -> list[Failure]:
    """The latest failures, if they are losses of nodes after the same report. No trial causes a preemption."""
    latest = failures[-1]
    same = takewhile(lambda past: (past.kind, past.step) == ("node lost", latest.step), reversed(failures))
    return [past for past in same if past.message != PREEMPTED]


def _since_reduction(failures: Sequence[Failure]) -> list[Failure]:
    """Those that had the latest micro-batch."""
    last = max((i for i, failure in enumerate(failures) if failure.micro_batch is not None), default=-1)
    return list(failures[last + 1 :])


def with_micro_batch(config: dict[str, Any], micro_batch: int | None) -> dict[str, Any]:
    """``config`` of a Ray trial that runs with ``micro_batch``; as it is where that is None."""
    return config if micro_batch is None else {**config, MICRO_BATCH: micro_batch}


def alike(failure: Failure, trials: Iterable[Trial]) -> list[Trial]:
    """Those of ``trials`` that failed in the same words as ``failure`` before their first report; numbers may differ.

    None of them if ``failure`` is not the code's, or if any trial has reported.
    """
    if failure.kind not in ("exception", "data") or failure.step:
        return []
    found, told = [], (failure.kind, _words(failure))
    for trial in trials:
        if trial.reports:
            return []
        if trial.failures and (trial.failures[-1].kind, _words(trial.failures[-1])) == told:
            found.append(trial)
    return found


def first_alike(failure: Failure, trials: Sequence[Trial], slots: int) -> int:
    """How many first trials have all failed like ``failure``; 0 unless as many as run at once, and at least `FIRST`."""
    first = trials[: max(FIRST, slots)]
    failed = {trial.id for trial in alike(failure, trials) if trial.failures[-1].final}
    return len(first) if len(first) >= FIRST and failed.issuperset(trial.id for trial in first) else 0


def _words(failure: Failure) -> str:
    return re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "N", failure.message)


class FailureStopper(Stopper):  # type: ignore[misc]
    """Ends the whole search when too many trials have failed."""

    def __init__(self, rules: Failures, usage: UsageTracker, control: SearchControl) -> None:
        self._rules = rules
        self._usage = usage
        self._control = control

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        if self._control.stop_reason:
            return True
        if reason := self._rules.limit_reached(self._usage.failed, self._usage.ended):
            self._control.stop_reason = reason
            self._control.say(f"the search ends: {reason}")
        return bool(reason)
