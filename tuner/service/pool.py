"""What searches share: the GPUs of a cluster, or its CPUs if it has no GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tuner.service.cluster import Capacity
from tuner.service.interface import Unit
from tuner.service.records import Account
from tuner.service.team import Team


@dataclass(frozen=True)
class Pool:
    """The shared resource now.

    Example:
        >>> from tuner.service.cluster import Capacity
        >>> from tuner.service.pool import pool
        >>> from tuner.service.records import Account
        >>> from tuner.service.team import Team
        >>> pool(Capacity(gpus=8, cpus=64), Team(reserved=2), Account()).room
        6.0
    """

    unit: Unit
    now: float
    """Of the machines that are there."""
    room: float
    """What searches get: without the reservation, and with what an autoscaler can start."""
    capacity: Capacity
    """What bounds the trials of a search. Infinite where an autoscaler brings what trials need."""


def unit_of(team: Team, account: Account, capacity: Capacity | None = None) -> Unit:
    """GPUs, unless the cluster never had one: spot machines may all be gone for an hour."""
    if team.unit is not None:
        return team.unit
    if capacity is None:
        return account.unit or "GPU"
    return "GPU" if capacity.gpus or account.unit == "GPU" or team.autoscales_to else "CPU"


def pool(capacity: Capacity, team: Team, account: Account) -> Pool:
    """The pool of a cluster.

    Args:
        capacity: Of the machines that are there.
        team: Has the reservation, and what an autoscaler can start.
        account: Knows whether the cluster ever had a GPU.

    Returns:
        The pool.
    """
    unit = unit_of(team, account, capacity)
    now = capacity.gpus if unit == "GPU" else capacity.cpus
    whole = max(now, team.autoscales_to or 0.0)
    if team.autoscales_to is not None:
        capacity = Capacity(whole, math.inf) if unit == "GPU" else replace(capacity, cpus=whole)
    return Pool(unit, now, max(0.0, whole - team.reserved), capacity)


def opened(account: Account, found: Pool) -> Account:
    """The account of a pool: a new one if it counted another unit, and with the most that there ever was."""
    if account.unit not in (None, found.unit):
        account = Account()
    return replace(account, unit=found.unit, largest=max(account.largest, found.now))


def largest(team: Team, account: Account) -> float:
    """The GPUs for searches when the cluster is largest; infinite if that is not known yet."""
    known = team.largest if team.largest is not None else max(account.largest, team.autoscales_to or 0.0)
    return max(0.0, known - team.reserved) if known else math.inf
