"""What becomes of the placement groups that processes leave: without Ray."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.air.execution.resources import placement_group

from tuner.execution import placement_groups
from tuner.execution.placement_groups import KEEP_S, PlacementGroups
from tuner.execution.slots import without_places
from tuner.plan.cluster import Cluster, Node


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    groups: list[Any] = []
    monkeypatch.setattr(placement_group, "remove_placement_group", groups.append)
    return groups


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(placement_groups, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(placement_group, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def acquired(made: PlacementGroups, group: str) -> Any:
    made._acquired_pgs.add(group)  # type: ignore[arg-type]
    made._pg_to_request[group] = None  # type: ignore[index]
    return SimpleNamespace(placement_group=group)


def test_what_nobody_keeps_is_freed_at_the_next_sweep(freed: list[Any], clock: SimpleNamespace) -> None:
    made = PlacementGroups()
    made.free_resources(acquired(made, "a"))
    assert freed == []
    made.sweep()
    made.sweep()
    assert (freed, made.kept, made._acquired_pgs) == (["a"], 0, set())


@pytest.mark.parametrize("first", ["keep", "free"])
def test_what_is_kept_is_freed_when_the_next_attempt_has_its_place(
    first: str, freed: list[Any], clock: SimpleNamespace
) -> None:
    """Ray tells of a process that died after it gave its place back, of an exception before."""
    made = PlacementGroups()
    place = acquired(made, "a")
    steps = [made.keep, made.free_resources]
    for step in steps if first == "keep" else reversed(steps):
        step(place)
    made.sweep()
    assert (freed, made.kept) == ([], 1)
    made.let_go(place)
    made.sweep()
    assert (freed, made.kept) == (["a"], 0)


def test_no_place_is_kept_for_long(freed: list[Any], clock: SimpleNamespace) -> None:
    made = PlacementGroups()
    place = acquired(made, "a")
    made.keep(place)
    made.free_resources(place)
    clock.now += KEEP_S - 1
    made.sweep()
    assert freed == []
    clock.now += 2
    made.sweep()
    made.let_go(place)
    assert (freed, made.kept) == (["a"], 0)


def test_a_place_that_is_kept_while_its_process_runs_is_not_idle(clock: SimpleNamespace) -> None:
    made = PlacementGroups()
    made.keep(acquired(made, "a"))
    assert made.kept == 0


def test_the_place_of_a_gpu_that_failed_is_never_freed(freed: list[Any], clock: SimpleNamespace) -> None:
    made = PlacementGroups()
    place = acquired(made, "a")
    made.keep_for_good(place)
    made.keep(place)  # the trial is tried again, too
    made.free_resources(place)
    made.let_go(place)
    clock.now += 10 * KEEP_S
    made.sweep()
    assert (freed, made.kept) == ([], 0)


def test_what_is_kept_for_good_is_no_room_for_trials() -> None:
    nodes = {"a": Node("a", {"CPU": 8.0, "GPU": 4.0}), "b": Node("b", {"CPU": 8.0, "GPU": 4.0})}
    request = {"CPU": 2.0, "GPU": 1.0}
    left = without_places(nodes, {"a": 3, "gone": 1}, request)
    assert {node_id: node.resources for node_id, node in left.items()} == {
        "a": {"CPU": 2.0, "GPU": 1.0},
        "b": {"CPU": 8.0, "GPU": 4.0},
    }
    assert Cluster(tuple(left.values())).slots(request) == 1 + 4
