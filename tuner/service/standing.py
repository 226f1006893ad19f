"""How a search of the queue stands on the cluster, as its run folder tells it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tuner.runs.diagnose import held_by_trial, read_live
from tuner.service.cluster import Capacity
from tuner.service.interface import Submission
from tuner.service.shares import ROUNDING
from tuner.storage.folder import RunFolder
from tuner.storage.lock import holder

_HOLDS = ("starting", "running")
_AT_RUNG = "paused"
"""The state of a trial that waits for the scheduler, and not for a place."""


@dataclass(frozen=True)
class Standing:
    """The trials of a search."""

    running: int = 0
    """That hold resources."""
    wanted: int = 1
    """That could run at once."""
    limit: int | None = None
    """At most so many may run, as the search knows it; None: no limit, or the search does not run yet."""
    is_paused: bool = False
    """Whether a person has paused it."""
    per_trial: Mapping[str, float] = field(default_factory=dict)
    """What all workers of one trial hold, as the search itself tells. Empty before it has begun: a share of a GPU is
    measured then, and ``gpu: auto`` decided."""

    def promised(self, limit: int) -> Standing:
        """It was sent that limit and may not know it yet: it may hold as much as the higher one lets it."""
        return replace(self, limit=max(limit, self.limit or 0))

    def unseen(self) -> Standing:
        """Its run folder cannot be read now: it keeps what it may hold, and wants no more."""
        return replace(self, wanted=max(self.running, min(self.wanted, self.limit or 0)))


def amount(submission: Submission, unit: str, now: Standing | None = None) -> float:
    """What a trial holds of the resource that users share. ``now``: how the search stands, if it has begun."""
    return ((now and now.per_trial) or submission.per_trial).get(unit, 0.0)


def places(submission: Submission, capacity: Capacity, per_trial: Mapping[str, float] | None = None) -> int:
    """How many trials the whole cluster could run at once, and the search has. ``per_trial``: as of `Standing`."""
    have = {"GPU": capacity.gpus, "CPU": capacity.cpus}
    known = per_trial or submission.per_trial
    rooms = [have[name] / amount + ROUNDING for name, amount in known.items() if name in have and amount > 0]
    most = math.inf if submission.trials is None else submission.trials
    return int(min([most, *rooms, 10_000.0]))


def standing(folder: RunFolder, submission: Submission, capacity: Capacity) -> Standing:
    """Of the search whose run folder is ``folder``. One that has not begun wants all places that it could have.

    Raises OSError if the folder cannot be read: that the search holds nothing would be a guess.
    """
    live = read_live(folder)
    per_trial = held_by_trial(live)
    whole = max(1, places(submission, capacity, per_trial))
    if not live or holder(folder, surely=True) is None:  # what it left when it ran last is not how it stands
        return Standing(wanted=whole, per_trial=per_trial)
    states = [trial["state"] for trial in live.get("trials", {}).values()]
    open_trials = sum(state != _AT_RUNG for state in states)
    wanted = max(open_trials, whole) if live.get("more") else max(open_trials, 1)
    most = min(whole, live.get("slots") or whole)
    return Standing(
        running=sum(state in _HOLDS for state in states),
        wanted=min(wanted, most),
        limit=live.get("limit"),
        is_paused=bool(live.get("paused")),
        per_trial=per_trial,
    )
