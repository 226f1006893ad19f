"""What becomes of a trial that fails, and when too many failures end the search."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tuner.spec.model import Model
from tuner.spec.quantities import Seconds, format_duration


class Failures(Model):
    """Retries of a trial that fails: it continues from its last checkpoint in another process, or ends.

    A lost node or a preemption does not count, unless the trial loses one node after another. A metric that is NaN,
    missing or not a number is never retried; nor is an exception that comes back with the same words after the same
    report.

    Example:
        >>> import tuner
        >>> tuner.Failures(retries=1, hang_after="10m").hang_after
        600.0
    """

    retries: Annotated[int, Field(ge=0)] = 2
    """Times that a trial is tried again after exceptions, deaths of its process and lack of memory."""
    stop_after: (
        Annotated[int, Field(ge=1)]
        | Annotated[str, Field(pattern=r"^(100|[1-9]?[0-9](\.[0-9]+)?)%$")]
        | Literal["auto"]
        | None
    ) = "auto"
    """The search ends when so many trials have failed: a number, or a share of the ended trials such as ``50%``, which
    counts once 10 have ended. ``auto``: when its first trials, as many as run at once and at least 4, have failed
    before their first report with the same exception, and no trial has reported. null: never."""
    hang_after: Seconds | Literal["auto"] | None = "auto"
    """A trial that has reported nothing for so long is killed, with the stacks of its threads in its log, and retried
    once (not with ``retries: 0``). A duration counts from the start of the attempt and from each report. ``auto``:
    after its third report, 10 times its own median time between reports, at least 60s. Before that, 10 times the
    longest time of a trial of the search so far, at least 10m. For the first trials 1h. null: never."""
    on_nan: Literal["fail", "stop"] = "fail"
    """When a compared metric is NaN or infinite: the trial has failed, or it stops with its last finite value."""
    on_oom: Literal["auto", "retry", "reduce_batch"] = "auto"
    """If memory runs out. ``reduce_batch``: the trial is retried with half its ``micro_batch``, as often as it can be
    halved; the trainable accumulates, so that the batch size stays the same. ``retry``: it is retried as it was, unless
    it alone needs more than its GPU has, or fails so again after the same report. ``auto``: ``reduce_batch`` if the
    trainable declares ``micro_batch``."""
    storage_patience: Seconds = 600.0
    """If the run folder cannot be written or read, no trial starts. After so long the search ends, and can be
    resumed."""

    def described(self, reducible: bool) -> str:
        """In one line, for a trainable that declares ``micro_batch``, or does not."""
        hang = format_duration(self.hang_after) if isinstance(self.hang_after, float) else self.hang_after or "never"
        on_oom = ("reduce_batch" if reducible else "retry") if self.on_oom == "auto" else self.on_oom
        words = [f"retries {self.retries} a trial, hang_after {hang}, on_nan {self.on_nan}, on_oom {on_oom}"]
        if self.on_oom == "reduce_batch" and not reducible:
            words.append("of no use, as the trainable has no micro_batch: such trials are tried again as they were")
        if self.stop_after not in ("auto", None):
            words.append(f"the search ends when {self.stop_after} of the trials have failed")
        return "; ".join(words)

    def limit_reached(self, failed: int, ended: int) -> str:
        """Why the search ends after ``failed`` of ``ended`` trials; empty if it continues."""
        if isinstance(self.stop_after, int) and failed >= self.stop_after:
            return f"failures.stop_after {self.stop_after} is reached: {failed} trials failed"
        if isinstance(self.stop_after, str) and self.stop_after.endswith("%") and ended >= MIN_ENDED:
            share = float(self.stop_after.removesuffix("%")) / 100
            if failed >= share * ended:
                return f"failures.stop_after {self.stop_after} is reached: {failed} of {ended} ended trials failed"
        return ""


MIN_ENDED = 10
"""Ended trials from which on a share of them can end the search."""
