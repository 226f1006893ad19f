"""Which node is sick, and where a trial that failed is tried again: the rules, without Ray."""

from __future__ import annotations

import pytest

from tuner.runs.failure import Failure, FailureKind
from tuner.search.node_health import IN_A_ROW, LOSSES, QUICK_S, NodeHealth, SickNode

BUS = Failure("exception", "RuntimeError: GPU is lost")


def fail(
    nodes: NodeHealth, node: str, *trials: str, failure: Failure = BUS, seconds: float | None = 2.0
) -> SickNode | None:
    found = [nodes.failed(trial, node, failure, seconds) for trial in trials]
    assert not any(found[:-1])
    return found[-1]


def test_three_trials_in_a_row_of_which_one_runs_elsewhere_tell_of_a_sick_node() -> None:
    nodes = NodeHealth()
    assert fail(nodes, "a", "t1", "t2", "t3") is None  # it may be the code
    assert nodes.reported("t1", "b") == SickNode("a", 3, "RuntimeError: GPU is lost")
    assert nodes.reported("t2", "b") is None  # it is told once
    assert fail(nodes, "a", "t4") is None


def test_once_a_trial_ran_elsewhere_the_third_failure_tells() -> None:
    nodes = NodeHealth()
    assert fail(nodes, "a", "t1", "t2") is None
    assert nodes.reported("t1", "b") is None
    assert fail(nodes, "a", "t3", failure=Failure("process died", "its process died")) == SickNode("a", 3, BUS.message)


def test_trials_that_fail_everywhere_say_nothing_of_nodes() -> None:
    nodes = NodeHealth()
    for number in range(3 * IN_A_ROW):
        assert fail(nodes, "a", f"t{number}") is None
        assert fail(nodes, "b", f"t{number}") is None
    assert nodes.reported("good", "b") is None
    assert fail(nodes, "a", "t100", "t101") is None


def test_a_report_on_a_node_ends_the_row() -> None:
    nodes = NodeHealth()
    fail(nodes, "a", "t1", "t2")
    assert nodes.is_suspected("a")
    nodes.reported("t3", "a")
    assert not nodes.is_suspected("a")
    fail(nodes, "a", "t4")
    assert nodes.reported("t4", "b") is None
    assert fail(nodes, "a", "t5") is None


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [("exception", QUICK_S + 1), ("exception", None), ("NaN", 1.0), ("bad report", 1.0), ("hung", 1.0)],
)
def test_what_takes_its_time_or_is_the_trials_own_fault_is_not_the_nodes(
    kind: FailureKind, seconds: float | None
) -> None:
    nodes = NodeHealth()
    trials = [f"t{number}" for number in range(2 * IN_A_ROW)]
    fail(nodes, "a", *trials, failure=Failure(kind, "m"), seconds=seconds)
    assert not nodes.is_suspected("a")
    assert [nodes.reported(trial, "b") for trial in trials] == [None] * len(trials)


def test_a_gpu_that_fails_late_is_the_nodes() -> None:
    nodes = NodeHealth()
    fail(nodes, "a", "t1", "t2", "t3", failure=Failure("GPU", "m"), seconds=None)
    assert nodes.reported("t1", "b") == SickNode("a", 3, "m")


def test_a_trial_avoids_where_it_failed_then_where_it_failed_last_and_always_what_is_put_aside() -> None:
    nodes = NodeHealth()
    assert nodes.avoided("t1") == []
    fail(nodes, "a", "t1")
    assert nodes.avoided("t1") == [frozenset("a")]
    fail(nodes, "b", "t1")
    assert nodes.avoided("t1") == [frozenset("ab"), frozenset("b")]
    nodes.aside.add("c")
    assert nodes.avoided("t1") == [frozenset("abc"), frozenset("bc"), frozenset("c")]
    assert nodes.avoided("t2") == [frozenset("c")]


def test_a_trial_that_was_on_all_the_latest_lost_nodes_is_taken_for_the_cause() -> None:
    nodes = NodeHealth()
    lost = [nodes.lost("pill", f"n{number}") for number in range(LOSSES)]
    assert lost == [False] * (LOSSES - 1) + [True]
    assert not nodes.lost("bystander", f"n{LOSSES - 1}")


def test_while_other_nodes_are_lost_too_no_trial_is_the_cause() -> None:
    nodes = NodeHealth()
    for number in range(3 * LOSSES):
        assert not nodes.lost("one", f"a{number}")
        assert not nodes.lost("other", f"b{number}")
