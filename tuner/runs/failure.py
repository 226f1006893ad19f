"""Why an attempt at a trial came to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FailureKind = Literal[
    "exception", "GPU memory", "host memory", "GPU", "process died", "node lost", "hung", "NaN", "bad report", "data"
]
"""``exception``: raised by the user's code. ``GPU memory``, ``host memory``: there was no more. ``GPU``: the device or
its driver failed (ECC, Xid, lost), whatever the code does. ``process died``: killed by a signal, or left through
``os._exit``. ``node lost``: its machine is gone, or was taken back (preemption). ``hung``: silent for longer than
``failures.hang_after``. ``NaN``: a compared metric is NaN or infinite. ``bad report``: it is missing, or no number.
``data``: a file or a connection failed (OSError)."""


MemoryKind = Literal["GPU memory", "host memory"]


@dataclass(frozen=True)
class Failure:
    """What ended one attempt at a trial."""

    kind: FailureKind
    message: str
    """One line."""
    step: int = 0
    """Number of the latest report that the attempt had made, counted over restarts; 0 where there was none."""
    micro_batch: int | None = None
    """The smaller micro-batch with which the trial continues; None if nothing changes."""
    final: bool = False
    """Whether the trial was not tried again (until a user reopened it: then it counts anew)."""

    def __str__(self) -> str:
        told = self.message if self.kind in ("process died", "node lost") else f"{self.kind}: {self.message}"
        after = f", after report {self.step}" if self.step else ""
        changed = f"; it continues with micro_batch {self.micro_batch}" if self.micro_batch else ""
        return f"{told}{after}{changed}"
