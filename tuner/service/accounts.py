"""The account of a cluster's users: GPU hours of this week, and what they are owed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.service.records import Account
from tuner.service.shares import Demand, Shares

MOST_S = 600.0
"""Of the time for which no service ran, so much counts."""

_DAY_S = 86_400
_THURSDAY = 3
"""Days from the Monday before 1970 to its first day."""


@dataclass(frozen=True)
class Use:
    """What a user has: `tuner.live.queue_source.UserStatus`."""

    gpus: float
    owed: float
    hours: float


def week_of(time: float) -> int:
    """The number of its week, which begins on Monday at 0:00 UTC."""
    return int((time // _DAY_S + _THURSDAY) // 7)


def passed(
    account: Account,
    now: float,
    shares: Shares,
    demands: Sequence[Demand],
    gpus: float,
    had: Mapping[str, float],
) -> tuple[Account, dict[str, Use]]:
    """The account after the time until ``now``, and what each user has.

    Args:
        account: Until then.
        now: Unix time, in seconds.
        shares: Holds what is owed, and is brought up to ``now``.
        demands: Of the searches.
        gpus: That users share.
        had: The GPUs that trials of each user hold.

    Returns:
        The new account, and by user what he has.
    """
    week = week_of(now)
    if week == account.week - 1:  # the clock was set back over a Monday
        week = account.week
    hours = {} if week > account.week else dict(account.hours)
    seconds = min(max(0.0, now - account.time), MOST_S) if account.time else 0.0
    shares.pass_time(seconds, shares.fair(demands, gpus, hours), had)
    for user, count in had.items():
        hours[user] = hours.get(user, 0.0) + count * seconds / 3600
    users = {
        member.name: Use(had.get(member.name, 0.0), shares.owed.get(member.name, 0.0), hours.get(member.name, 0.0))
        for member in shares.members
    }
    return replace(account, time=now, week=week, hours=hours, owed=dict(shares.owed)), users
