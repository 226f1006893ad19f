"""How many trials each search of a shared cluster may run at once. Knows no clock, no Ray and no storage.

**Weighted max-min fairness** (Bertsekas and Gallager 1992, section 6.5.2): no user can get more but by taking from one
who has less for his weight. GPUs are handed out one trial at a time, to the user who is furthest behind. Searches of
one user share what he gets in the same way.

GPUs do not divide, and there may be more users than GPUs. So each user is owed the GPU seconds that he lacked in the
last hours, and the places move from user to user. Debts fade, and nobody is owed anything while he asks for nothing: a
user who comes after a quiet week gets no more than his share.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

_HORIZON_S = 1800.0
"""A member who is owed one GPU for so long goes before one who has a GPU less."""

_HALF_LIFE_S = 4 * _HORIZON_S
"""After which half of what is owed is forgotten."""

ROUNDING = 1e-9
"""Fifths and tenths of GPUs add up to whole ones."""

_LEAST_S = 1.0
"""GPU seconds: less is forgotten of somebody who is not a member."""

_SWITCH = 0.5
"""A place moves to another trial only if its user is behind by more than so many GPUs: each move costs a resume. It
counts as much as that for the user with the highest weight, and less for others."""

_Claim = tuple[int, float, float, str, "Demand"]
"""Of a search on the next place of its member; the smallest one gets it."""
_MemberClaim = tuple[int, float, float, str]
"""Of a member on the next place of the cluster."""

Reason = Literal["runs", "share", "quota at once", "quota a week", "cluster"]


@dataclass(frozen=True)
class Member:
    """A user of the cluster, or a team.

    Example:
        >>> from tuner.service.shares import Member
        >>> Member("ada", weight=2.0, gpus_at_once=64).gpu_hours_a_week is None
        True
    """

    name: str
    weight: float = 1.0
    """One with twice the weight gets twice the GPUs while both ask for more."""
    gpus_at_once: float | None = None
    """A quota; None: none."""
    gpu_hours_a_week: float | None = None
    """A quota; None: none."""


@dataclass(frozen=True)
class Demand:
    """What a search asks for now."""

    search: str
    member: str
    trials: int
    """How many could run at once: those that run, wait at a rung, or could begin."""
    gpus: float = 1.0
    """Of a trial."""
    priority: int = 0
    """Those with a higher one come first, whoever they belong to."""
    submitted: float = 0.0
    """Of two that are equal otherwise the earlier one comes first."""


@dataclass(frozen=True)
class Allotment:
    """What a search gets."""

    trials: int
    reason: Reason
    """``runs``: all that it asks for; else what it waits for: its share, a quota of its user, or the cluster, which has
    not so many GPUs at all."""


@dataclass
class Shares:
    """Hands out the GPUs of a cluster.

    Example:
        >>> from tuner.service.shares import Demand, Member, Shares
        >>> shares = Shares([Member("ada"), Member("bob", weight=3.0)])
        >>> asked = [Demand("a", "ada", trials=100), Demand("b", "bob", trials=100)]
        >>> {name: allotment.trials for name, allotment in shares.allot(asked, gpus=8).items()}
        {'a': 2, 'b': 6}
    """

    members: Iterable[Member]
    owed: dict[str, float] = field(default_factory=dict)
    """GPU seconds that each member should have had and did not get; negative if he got more. All that is to be kept
    when the process ends."""
    unit: str = "GPU"
    """The name of what is shared, for people: a cluster without GPUs shares its CPUs."""

    def __post_init__(self) -> None:
        self._members = {member.name: member for member in self.members}

    def problem(self, demand: Demand, gpus: float) -> str:
        """Why a search can never run on a cluster that has at most ``gpus``; empty if it can.

        Args:
            demand: What it asks for.
            gpus: Of the cluster when it is largest, without those that are reserved.

        Returns:
            One line for the user.
        """
        member = self._members.get(demand.member)
        if member is None:
            return f"{demand.member!r} is not a user of this cluster"
        if demand.gpus > gpus:
            return (
                f"a trial takes {demand.gpus:g} {self.unit}s, and the cluster never has more than {gpus:g} for searches"
            )
        if member.gpus_at_once is not None and demand.gpus > member.gpus_at_once:
            return (
                f"a trial takes {demand.gpus:g} {self.unit}s, and {member.name} may use {member.gpus_at_once:g} at once"
            )
        if member.gpu_hours_a_week == 0:
            return f"{member.name} may use 0 {self.unit} hours a week"
        return ""

    def allot(
        self,
        demands: Sequence[Demand],
        gpus: float,
        running: Mapping[str, int] | None = None,
        used_hours: Mapping[str, float] | None = None,
        others: Mapping[str, float] | None = None,
    ) -> dict[str, Allotment]:
        """How many trials each search may run at once, from now on.

        A search that runs more is to pause trials at their next rungs; one that runs fewer may start or continue some.

        Args:
            demands: Of all searches that could run something, of members.
            gpus: That the cluster has now, without those that are reserved. It may change from call to call.
            running: Trials of each search that run now: between equal claims they keep their places.
            used_hours: GPU hours of each member this week.
            others: GPUs that each member holds by searches that are none of ``demands``: they count in quotas.

        Returns:
            An allotment for each search.
        """
        running, used_hours, others = running or {}, used_hours or {}, others or {}
        got = dict.fromkeys((one.search for one in demands), 0)
        got_by = dict.fromkeys(self._members, 0.0)
        reasons: dict[str, Reason] = dict.fromkeys(got, "runs")

        def keeps(one: Demand) -> bool:
            return got[one.search] < running.get(one.search, 0)

        def claim(one: Demand) -> _Claim:
            return -one.priority, got[one.search] * one.gpus - keeps(one), one.submitted, one.search, one

        def member_claim(name: str) -> _MemberClaim:
            first = queues[name][0]
            has = got_by[name] - self.owed.get(name, 0.0) / _HORIZON_S
            level = has / self._members[name].weight - _SWITCH / heaviest * keeps(first[-1])
            return first[0], level, first[2], name

        queues: dict[str, list[_Claim]] = {}
        for one in demands:
            queues.setdefault(one.member, []).append(claim(one))
        for queue in queues.values():
            heapq.heapify(queue)
        heaviest = max((self._members[name].weight for name in queues), default=1.0)
        line, left = [member_claim(name) for name in queues], gpus
        heapq.heapify(line)
        while line:
            name = heapq.heappop(line)[-1]
            one = heapq.heappop(queues[name])[-1]
            refused = self._refusal(one, got_by[name] + others.get(name, 0.0), left, gpus, used_hours)
            if got[one.search] < one.trials and not refused:
                got[one.search] += 1
                got_by[name] += one.gpus
                left -= one.gpus
                heapq.heappush(queues[name], claim(one))
            elif got[one.search] < one.trials:
                reasons[one.search] = refused or "runs"
            if queues[name]:
                heapq.heappush(line, member_claim(name))
        return {search: Allotment(trials, reasons[search]) for search, trials in got.items()}

    def _refusal(
        self, one: Demand, got: float, left: float, gpus: float, used_hours: Mapping[str, float]
    ) -> Reason | None:
        """Why the search gets no further place."""
        member = self._members[one.member]
        if _has_spent_week(member, used_hours):
            return "quota a week"
        if member.gpus_at_once is not None and got + one.gpus > member.gpus_at_once + ROUNDING:
            return "quota at once"
        if one.gpus > gpus:
            return "cluster"
        return "share" if one.gpus > left + ROUNDING else None

    def fair(
        self, demands: Sequence[Demand], gpus: float, used_hours: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """The GPUs that each member would have if they could be divided, whatever happened before.

        Args:
            demands: As of `allot`.
            gpus: As of `allot`.
            used_hours: As of `allot`.

        Returns:
            One number for each member.
        """
        used_hours = used_hours or {}
        share = dict.fromkeys(self._members, 0.0)
        for priority in sorted({one.priority for one in demands}, reverse=True):
            wants = dict.fromkeys(self._members, 0.0)
            for one in demands:
                if one.priority == priority and one.gpus <= gpus:
                    wants[one.member] += one.trials * one.gpus
            for name, member in self._members.items():
                if _has_spent_week(member, used_hours):
                    wants[name] = 0.0
                if member.gpus_at_once is not None:
                    wants[name] = min(wants[name], member.gpus_at_once - share[name])
            for name, more in self._filled(wants, gpus - sum(share.values())).items():
                share[name] += more
        return share

    def _filled(self, wants: Mapping[str, float], left: float) -> dict[str, float]:
        """``left`` divided by weights, and nobody gets more than he wants."""
        found = dict.fromkeys(wants, 0.0)
        hungry = {name for name, want in wants.items() if want > 0}
        while hungry and left > ROUNDING:
            level = left / sum(self._members[name].weight for name in hungry)
            full = {name for name in hungry if wants[name] <= level * self._members[name].weight}
            for name in full or hungry:
                found[name] = wants[name] if full else level * self._members[name].weight
                left -= found[name]
            if not full:
                break
            hungry -= full
        return found

    def pass_time(self, seconds: float, fair: Mapping[str, float], had: Mapping[str, float]) -> None:
        """Notes what members had, and so what is owed.

        Args:
            seconds: That have passed.
            fair: What `fair` returned for that time.
            had: The GPUs that trials of each member held.
        """
        kept = 0.5 ** (seconds / _HALF_LIFE_S)
        faded = {name: kept * owed for name, owed in self.owed.items()}
        self.owed = {name: owed for name, owed in faded.items() if name in self._members or abs(owed) >= _LEAST_S}
        for name in self._members:
            more = seconds * (fair[name] - had.get(name, 0.0)) if fair[name] > 0 else 0.0
            self.owed[name] = self.owed.get(name, 0.0) + more


def _has_spent_week(member: Member, used_hours: Mapping[str, float]) -> bool:
    """Whether the GPU hours of this week are used up."""
    return member.gpu_hours_a_week is not None and used_hours.get(member.name, 0.0) >= member.gpu_hours_a_week
