"""Who gets how much of a shared cluster."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.cluster_shares import RESUME_S, outcome, searches
from tuner.service.shares import Demand, Member, Shares


def members(*names: str) -> list[Member]:
    return [Member(name) for name in names]


def trials(shares: Shares, demands: list[Demand], gpus: float, **known: dict[str, float]) -> dict[str, int]:
    return {name: one.trials for name, one in shares.allot(demands, gpus, **known).items()}  # type: ignore[arg-type]


def hours(shares: Shares, demands: list[Demand], gpus: float, of: float, every: float = 30.0) -> dict[str, float]:
    """The GPU hours that each member gets in ``of`` hours; places change only where the allotment does."""
    got, running, gpus_of = Counter[str](), dict[str, int](), {one.search: one for one in demands}
    for _ in range(round(of * 3600 / every)):
        fair = shares.fair(demands, gpus)
        running = {name: one.trials for name, one in shares.allot(demands, gpus, running).items()}
        had = Counter[str]()
        for name, count in running.items():
            had[gpus_of[name].member] += count * gpus_of[name].gpus  # type: ignore[assignment]
        shares.pass_time(every, fair, had)
        for name, held in had.items():
            got[name] += held * every / 3600  # type: ignore[assignment]
    return dict(got)


class TestOneMoment:
    def test_members_share_by_weight_whatever_the_number_of_their_searches(self) -> None:
        shares = Shares([Member("ada"), Member("bob", weight=3.0)])
        asked = [Demand(f"a{i}", "ada", 50) for i in range(9)] + [Demand("b", "bob", 50)]
        got = trials(shares, asked, 40)
        assert got["b"] == 30
        assert sorted(got[f"a{i}"] for i in range(9)) == [1] * 8 + [2]

    @pytest.mark.parametrize(("weight", "running"), [(3.0, 4), (1.0, 3), (7.0, 7)])
    def test_places_move_when_weights_change_and_then_stay(self, weight: float, running: int) -> None:
        shares = Shares([Member("ada"), Member("bob", weight=weight)])
        asked = [Demand("a", "ada", 50), Demand("b", "bob", 50, submitted=1.0)]
        fair = {name: round(8 * part / (1 + weight)) for name, part in (("a", 1), ("b", weight))}
        for had in ({"a": running, "b": 8 - running}, fair):
            assert trials(shares, asked, 8, running=had) == fair

    def test_what_one_does_not_ask_for_goes_to_the_others(self) -> None:
        asked = [Demand("a", "ada", 3), Demand("b", "bob", 100), Demand("c", "cem", 100)]
        allotments = Shares(members("ada", "bob", "cem")).allot(asked, 31)
        assert {name: one.trials for name, one in allotments.items()} == {"a": 3, "b": 14, "c": 14}
        assert [allotments[name].reason for name in "abc"] == ["runs", "share", "share"]

    def test_large_trials_are_counted_by_their_gpus(self) -> None:
        asked = [Demand("a", "ada", 100, gpus=8), Demand("b", "bob", 100, gpus=0.5)]
        assert trials(Shares(members("ada", "bob")), asked, 32) == {"a": 2, "b": 32}

    def test_small_trials_fill_gpus_and_quotas(self) -> None:
        assert trials(Shares(members("ada")), [Demand("a", "ada", 100, gpus=0.2)], 3) == {"a": 15}
        quota = Shares([Member("ada", gpus_at_once=2.0)])
        assert trials(quota, [Demand("a", "ada", 100, gpus=0.1)], 4) == {"a": 20}

    def test_a_large_trial_is_not_starved_by_small_ones(self) -> None:
        asked = [Demand("a", "ada", 1, gpus=8, submitted=9.0), Demand("b", "bob", 100)]
        assert trials(Shares(members("ada", "bob")), asked, 8, running={"b": 8}) == {"a": 0, "b": 8}
        assert hours(Shares(members("ada", "bob")), asked, 8, of=50)["ada"] == pytest.approx(200, rel=0.1)

    def test_a_higher_priority_comes_first(self) -> None:
        asked = [Demand("a", "ada", 6), Demand("b", "bob", 6, priority=1), Demand("c", "cem", 6)]
        assert trials(Shares(members("ada", "bob", "cem")), asked, 10) == {"a": 2, "b": 6, "c": 2}

    def test_quotas_and_a_cluster_without_such_machines_are_the_reason(self) -> None:
        shares = Shares([Member("ada", gpus_at_once=4), Member("bob", gpu_hours_a_week=10), Member("cem")])
        asked = [Demand("a", "ada", 9), Demand("b", "bob", 9), Demand("c", "cem", 9, gpus=64), Demand("d", "cem", 2)]
        allotments = shares.allot(asked, 32, used_hours={"bob": 10.0})
        found = {name: (one.trials, one.reason) for name, one in allotments.items()}
        assert found == {"a": (4, "quota at once"), "b": (0, "quota a week"), "c": (0, "cluster"), "d": (2, "runs")}

    def test_a_quota_counts_what_paused_searches_still_hold(self) -> None:
        asked = [Demand("a", "ada", 9)]
        shares = Shares([Member("ada", gpus_at_once=4.0)])
        found = shares.allot(asked, 8, others={"ada": 3.0})["a"]
        assert (found.trials, found.reason) == (1, "quota at once")

    def test_between_equals_those_that_run_keep_their_places(self) -> None:
        asked = [Demand(name, name, 1, submitted=number) for number, name in enumerate("abcd")]
        assert trials(Shares(members(*"abcd")), asked, 2, running={"b": 1, "d": 1}) == {"a": 0, "b": 1, "c": 0, "d": 1}

    def test_a_cluster_that_shrinks_and_grows(self) -> None:
        shares = Shares(members("ada", "bob"))
        asked = [Demand("a", "ada", 9), Demand("b", "bob", 9)]
        assert [sum(trials(shares, asked, gpus).values()) for gpus in (10, 4, 0, 32)] == [10, 4, 0, 18]

    @pytest.mark.parametrize(
        ("demand", "told"),
        [
            (Demand("a", "ada", 1, gpus=4), ""),
            (Demand("a", "eve", 1), "'eve' is not a user of this cluster"),
            (Demand("a", "bob", 1, gpus=64), "a trial takes 64 GPUs, and the cluster never has more than 32"),
            (Demand("a", "ada", 1, gpus=8), "a trial takes 8 GPUs, and ada may use 4 at once"),
            (Demand("a", "cem", 1), "cem may use 0 GPU hours a week"),
        ],
    )
    def test_a_search_that_could_never_run_is_refused(self, demand: Demand, told: str) -> None:
        shares = Shares([Member("ada", gpus_at_once=4), Member("bob"), Member("cem", gpu_hours_a_week=0)])
        assert shares.problem(demand, 32).startswith(told)
        assert bool(shares.problem(demand, 32)) == bool(told)


@st.composite
def moments(draw: st.DrawFn) -> tuple[Shares, list[Demand], int, dict[str, int]]:
    names = [f"m{i}" for i in range(draw(st.integers(1, 5)))]
    quotas = st.none() | st.integers(0, 20)
    shares = Shares([Member(name, draw(st.sampled_from([0.5, 1.0, 3.0])), draw(quotas)) for name in names])
    shares.owed = {name: draw(st.floats(-1e5, 1e5)) for name in names}
    demands = [
        Demand(
            f"s{i}",
            draw(st.sampled_from(names)),
            draw(st.integers(0, 30)),
            draw(st.sampled_from([0.5, 1.0, 2.0, 8.0])),
            draw(st.integers(0, 1)),
            i,
        )
        for i in range(draw(st.integers(0, 8)))
    ]
    running = {one.search: draw(st.integers(0, one.trials)) for one in demands}
    return shares, demands, draw(st.integers(0, 64)), running


@given(moments())
def test_nothing_is_handed_out_twice_and_nothing_lies_idle(
    moment: tuple[Shares, list[Demand], int, dict[str, int]],
) -> None:
    shares, demands, gpus, running = moment
    allotments = shares.allot(demands, gpus, running)
    got = {one.search: allotments[one.search].trials for one in demands}
    left = gpus - sum(got[one.search] * one.gpus for one in demands)
    assert left >= 0
    for one in demands:
        assert 0 <= got[one.search] <= one.trials
        assert (got[one.search] == one.trials) == (allotments[one.search].reason == "runs")
        if allotments[one.search].reason == "share":
            assert one.gpus > left
    for member in shares.members:
        used = sum(got[one.search] * one.gpus for one in demands if one.member == member.name)
        assert member.gpus_at_once is None or used <= member.gpus_at_once


@given(moments())
def test_small_trials_come_close_to_what_is_fair(
    moment: tuple[Shares, list[Demand], int, dict[str, int]],
) -> None:
    shares, demands, gpus, _ = moment
    shares.owed = {}
    demands = [Demand(one.search, one.member, one.trials, 1.0, 0, one.submitted) for one in demands]
    got = Counter[str]()
    for one in demands:
        got[one.member] += shares.allot(demands, gpus)[one.search].trials
    for name, fair in shares.fair(demands, gpus).items():
        assert abs(got[name] - fair) <= 3  # the largest weight


class TestOverTime:
    def test_more_members_than_gpus_take_turns_by_weight(self) -> None:
        shares = Shares([Member("ada"), Member("bob"), Member("cem", weight=2.0)])
        got = hours(shares, [Demand(name, name, 5) for name in ("ada", "bob", "cem")], 1, of=40)
        assert got["ada"] == pytest.approx(10, rel=0.15)
        assert got["bob"] == pytest.approx(10, rel=0.15)
        assert got["cem"] == pytest.approx(20, rel=0.15)

    def test_a_place_moves_some_times_an_hour_and_not_at_every_look(self) -> None:
        shares = Shares(members("ada", "bob"))
        demands = [Demand("a", "ada", 5), Demand("b", "bob", 5)]
        holders, running = [], dict[str, int]()
        for _ in range(10 * 120):
            fair = shares.fair(demands, 1)
            running = {name: one.trials for name, one in shares.allot(demands, 1, running).items()}
            holders.append(max(running, key=lambda name: running[name]))
            shares.pass_time(30, fair, {"ada": running["a"], "bob": running["b"]})
        moves = sum(a != b for a, b in itertools.pairwise(holders))
        assert 5 <= moves <= 40

    def test_who_was_away_is_owed_nothing(self) -> None:
        shares = Shares(members("ada", "bob"))
        alone = [Demand("a", "ada", 100)]
        hours(shares, alone, 10, of=24 * 7)
        both = [*alone, Demand("b", "bob", 100)]
        assert trials(shares, both, 10) == {"a": 5, "b": 5}

    def test_what_one_is_owed_fades_while_he_is_away(self) -> None:
        shares = Shares(members("ada"), owed={"ada": 40.0, "bob": 40_000.0, "cem": -1.5})
        shares.pass_time(7200, {"ada": 0.0}, {})
        assert shares.owed == {"ada": 20.0, "bob": 20_000.0}

    def test_who_had_more_while_another_waited_gives_it_back(self) -> None:
        shares = Shares(members("ada", "bob"))
        both = [Demand("a", "ada", 100), Demand("b", "bob", 100)]
        for _ in range(60):  # the trials of ada take half an hour to come to a rung
            shares.pass_time(30, shares.fair(both, 10), {"ada": 10.0})
        assert trials(shares, both, 10)["b"] >= 7
        again = Shares(members("ada", "bob"), owed=dict(shares.owed))  # after a restart
        assert trials(again, both, 10) == trials(shares, both, 10)
        assert hours(shares, both, 10, of=10)["bob"] == pytest.approx(52, abs=2.5)


@pytest.mark.parametrize("seed", range(3))
def test_a_simulated_team_shares_fairly_and_wastes_nothing(seed: int) -> None:
    """20 users for a day on 512 GPUs, beside a queue that serves searches in their order."""
    users, hours, gpus = 20, 24, 512
    fifo, fair = (outcome(policy, seed, users, hours, gpus) for policy in ("fifo", "fair, checkpoints"))
    assert len(fair.slowdowns) == len(searches(seed, users, hours, gpus))  # each search ended
    assert fair.share_error < fifo.share_error / 5
    assert max(fair.waits) < max(fifo.waits) / 5
    assert fair.use > fifo.use - 0.02
    assert fair.given_away > 100
    assert fair.lost == RESUME_S  # nothing is trained again
