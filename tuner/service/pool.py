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
    whole: float
    """With those that an autoscaler can start."""
    room: float
    """What searches get: the whole without the reservation."""
    capacity: Capacity
    """What bounds the trials of a search. Infinite where an autoscaler brings what trials need."""


def unit_of(team: Team, account: Account, capacity: Capacity | None = None) -> Unit:
    """GPUs, unless the cluster never had one: spot machines may all be gone for an hour."""
    if team.unit is not None:
        return team.unit
    if capacity is None:
        return account.unit or "GPU"
    autoscaled = team.autoscales_to or (capacity.autoscaled and capacity.autoscaled.gpus)
    return "GPU" if capacity.gpus or account.unit == "GPU" or autoscaled else "CPU"


def pool(capacity: Capacity, team: Team, account: Account) -> Pool:
    """The pool of a cluster.

    Args:
        capacity: Of the machines that are there.
        team: Has the reservation, and what an autoscaler can start, if that is not known of the cluster.
        account: Knows whether the cluster ever had a GPU.

    Returns:
        The pool.
    """
    unit = unit_of(team, account, capacity)
    now, autoscaled = _amount(capacity, unit), _autoscaled(capacity, team, unit)
    whole = max(now, autoscaled or 0.0)
    if autoscaled is not None:
        capacity = Capacity(whole, math.inf) if unit == "GPU" else replace(capacity, cpus=whole)
    return Pool(unit, now, whole, max(0.0, whole - team.reserved), capacity)


def _amount(capacity: Capacity, unit: Unit) -> float:
    return capacity.gpus if unit == "GPU" else capacity.cpus


def _autoscaled(capacity: Capacity, team: Team, unit: Unit) -> float | None:
    """The amount with all machines that an autoscaler may start; None without one."""
    if team.autoscales_to is not None or capacity.autoscaled is None:
        return team.autoscales_to
    return _amount(capacity.autoscaled, unit)


def opened(account: Account, found: Pool) -> Account:
    """The account of a pool: a new one if it counted another unit; with the most that there was or could be."""
    if account.unit not in (None, found.unit):
        account = Account()
    return replace(account, unit=found.unit, largest=max(account.largest, found.whole))


def largest(team: Team, account: Account) -> float:
    """The GPUs for searches when the cluster is largest; infinite if that is not known yet."""
    known = team.largest if team.largest is not None else max(account.largest, team.autoscales_to or 0.0)
    return max(0.0, known - team.reserved) if known else math.inf
