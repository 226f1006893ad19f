"""On which nodes a trial may start, and when one that waits is queued: the control loop without Ray."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray.tune import PlacementGroupFactory
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial as RayTrial

from tuner.execution import placement
from tuner.execution.placement import PlacedTrials
from tuner.execution.placement_groups import PlacementGroups
from tuner.plan.cluster import Node
from tuner.runs.failure import Failure
from tuner.search.node_health import NodeHealth, SickNode

BROKEN = Failure("exception", "RuntimeError: GPU is lost")


class Loop(PlacedTrials):
    """Of three nodes, each with room for one trial."""

    def __init__(self, *alive: str) -> None:
        self.plan = SimpleNamespace(fits_on=bool)  # type: ignore[assignment]
        self._nodes, self._next_look = NodeHealth(), math.inf
        self._alive = {name: Node(name, {"CPU": 1}) for name in alive}
        self._plain = self._usual = PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}], strategy="SPREAD")
        self.told: list[str] = []
        hosts = SimpleNamespace(of_node=lambda node: f"host-{node}")
        self.recorder = SimpleNamespace(notify=self.told.append, hosts=hosts)  # type: ignore[assignment]
        self._drop_idle = lambda: None  # type: ignore[method-assign]

    def avoids(self, trial: str) -> str:
        """The selector of the trial's request, of each of its processes; empty where it has none."""
        request = self._request(SimpleNamespace(trial_id=trial))  # type: ignore[arg-type]
        assert request.strategy == "SPREAD"
        selectors = request._bound.arguments.get("bundle_label_selector")
        if selectors is None:
            assert request is self._plain
            return ""
        assert selectors == [selectors[0]] * 2
        return str(selectors[0]["ray.io/node-id"])


def test_a_trial_asks_for_other_nodes_than_those_where_it_failed_while_there_are_some() -> None:
    loop = Loop("a", "b", "c")
    for node, avoids in (("a", "!in(a)"), ("b", "!in(a,b)"), ("c", "!in(c)")):  # in the end only not the latest again
        assert loop.avoids("other") == ""
        loop._nodes.failed("t", node, BROKEN, 1.0)
        assert loop.avoids("t") == avoids
    loop._alive = {"c": Node("c", {"CPU": 1})}
    assert loop.avoids("t") == ""


def test_no_trial_asks_for_a_node_that_is_put_aside_unless_it_is_the_last() -> None:
    loop = Loop("a", "b")
    loop._put_aside(None)
    loop._put_aside(SickNode("a", 3, "RuntimeError: GPU is lost"))
    told = "3 trials in a row failed on node host-a soon after their start (RuntimeError: GPU is lost)"
    assert loop.told == [f"{told}, and not elsewhere: no trial of this search starts there any more"]
    assert loop.avoids("t") == "!in(a)"
    loop._put_aside(SickNode("b", 4, "RuntimeError: GPU is lost"))
    assert loop.told[1].endswith(": it is used nevertheless, as no other node has room for a trial")
    assert loop.avoids("t") == "!in(a)"
    loop._alive = {"a": Node("a", {"CPU": 1})}
    assert loop.avoids("t") == ""


def test_a_new_trial_takes_the_place_of_one_that_waits_elsewhere_but_not_on_a_node_under_suspicion() -> None:
    loop = Loop("a", "b")
    for number, beside in ((1, 1), (2, 0)):
        loop._nodes.failed(f"t{number}", "a", BROKEN, 1.0)
        loop._choosy = {Mock(trial_id=f"t{n}") for n in range(1, number + 1)}
        assert loop._beside() == beside


def test_a_trial_that_is_held_back_is_queued_when_its_time_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    now, queued = [100.0], []
    loop: Any = object.__new__(PlacedTrials)
    loop._held, loop._next_look = {"a": 130.0, "b": 160.0}, math.inf
    loop._places = PlacementGroups()
    loop._set_trial_status = lambda trial, status: queued.append((trial, status))
    monkeypatch.setattr(TuneController, "on_step_begin", lambda loop: None)
    monkeypatch.setattr(placement.time, "monotonic", lambda: now[0])  # type: ignore[attr-defined]
    loop.on_step_begin()
    assert queued == []
    now[0] = 131.0
    for _ in range(2):
        loop.on_step_begin()
    assert queued == [("a", RayTrial.PENDING)]
    assert list(loop._held) == ["b"]
