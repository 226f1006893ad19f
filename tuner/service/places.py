"""From shares to limits: how many trials each search may run from now on, so that no GPU is given away twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.service.shares import ROUNDING, Demand, Reason, Shares
from tuner.service.standing import Standing

_WAITS: dict[Reason, str] = {
    "share": "others have the rest of the {unit}s by their shares",
    "quota at once": "the user has as many {unit}s as the quota allows at once",
    "quota a week": "the user has used the {unit} hours of this week",
    "cluster": "the cluster has too few {unit}s for one of its trials now",
}


@dataclass(frozen=True)
class Placement:
    """What searches get."""

    limits: Mapping[str, int]
    """How many trials each may run at once. A search that a person has paused has none: it keeps its last limit."""
    waits: Mapping[str, str]
    """Why searches have less than they ask for."""


def placed(
    shares: Shares,
    demands: Sequence[Demand],
    gpus: float,
    standings: Mapping[str, Standing],
    used_hours: Mapping[str, float],
    others: Mapping[str, float] | None = None,
) -> Placement:
    """The limit of each search.

    A search above its allotment is limited at once, and keeps its GPUs until its trials come to checkpoints. Until
    then they are not free, and others grow only into free ones.

    Args:
        shares: Of the members.
        demands: As of `Shares.allot`.
        gpus: As of `Shares.allot`.
        standings: By search what it has now, also of those without a demand.
        used_hours: As of `Shares.allot`.
        others: GPUs that trials of searches without a demand hold, by user: people have paused or stopped those.

    Returns:
        Limits and reasons.
    """
    running = {name: one.running for name, one in standings.items()}
    others = others or {}
    allotments = shares.allot(demands, gpus, running, used_hours, others)
    sizes = {one.search: one.gpus for one in demands}
    limits = {}
    for name, allotment in allotments.items():
        had = standings[name].limit
        limits[name] = min(allotment.trials, running[name] if had is None else max(had, running[name]))
    holds = {name: max(limits.get(name, 0), count) for name, count in running.items()}
    free = gpus - sum(others.values()) - sum(count * sizes.get(name, 0.0) for name, count in holds.items())
    for one in sorted(demands, key=lambda one: (-one.priority, one.submitted, one.search)):
        grows = allotments[one.search].trials - limits[one.search]
        if one.gpus > 0:
            grows = min(grows, int(max(0.0, free + ROUNDING) / one.gpus) + holds[one.search] - limits[one.search])
            free -= max(0, limits[one.search] + grows - holds[one.search]) * one.gpus
        limits[one.search] += max(0, grows)
    waits = {
        name: _WAITS.get(allotment.reason, "").format(unit=shares.unit)
        for name, allotment in allotments.items()
        if limits[name] < allotment.trials or allotment.reason != "runs"
    }
    full = "its share is free when trials of others come to their checkpoints"
    return Placement(limits, {name: why or full for name, why in waits.items()})
