"""When a value computed again is the recorded one."""

from __future__ import annotations

import contextlib
import math
import re
import struct
from dataclasses import dataclass
from typing import Any

_MEASURES = re.compile(
    r"(^|[_/])(time|seconds?|secs?|ms|pid|host(name)?|date|timestamp|duration|runtime|latency|throughput|speed|memory|mem|[kmg]ib)($|[_/])"
    r"|_per_(s|sec|second|minute|hour)$|_s$"
)
"""Names of metrics that tell how a process ran, not what it computed: ``images_per_second``, ``pid_``, ``eval_ms``."""


@dataclass(frozen=True)
class Difference:
    """A metric that is not what was recorded, at the first report where it is not."""

    metric: str
    step: int
    here: Any
    """None if it was not reported here."""
    recorded: Any
    """None if it was not recorded; a run folder keeps no NaN."""
    measured: bool
    """Whether its name shows that it measures the process (`measures`): such a one never agrees, and does not count."""

    def __str__(self) -> str:
        return f"{self.metric} {_shown(self.here)} here, {_shown(self.recorded)} recorded"


def is_process_metric(metric: str) -> bool:
    """Whether a metric of this name tells how a process ran, so that it is another one each time."""
    return bool(_MEASURES.search(metric))


ROUNDING = 1e-3
"""Relative difference of two numbers that are equal up to rounding, which a training makes larger at each step."""


def equal_as_recorded(here: Any, recorded: Any, tolerance: float = 0.0) -> bool:
    """Whether a value is the recorded one, as a run folder keeps it; numbers up to a relative ``tolerance``.

    There NaN and None are absent, whole numbers may have become floats beside others, and a column of mixed kinds is
    text.
    """
    if _absent(here) or _absent(recorded):
        return _absent(here) and _absent(recorded)
    if isinstance(recorded, str):
        return str(here) == recorded
    if isinstance(here, bool) or isinstance(recorded, bool):
        return here is recorded or (type(here) is type(recorded) and here == recorded)
    if isinstance(here, float) or isinstance(recorded, float):
        with contextlib.suppress(TypeError, ValueError, OverflowError):  # text here, or an int beyond any float
            return struct.pack("d", float(here)) == struct.pack("d", float(recorded)) or (
                tolerance > 0 and math.isclose(here, recorded, rel_tol=tolerance, abs_tol=tolerance)
            )
        return False
    return bool(here == recorded)


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _shown(value: Any) -> str:
    """All digits of a number: those in which two differ may be the last."""
    return "nothing" if value is None else repr(value)
