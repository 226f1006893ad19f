"""How many trials run at once, while nodes come and go."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from tuner.plan.cluster import Node
from tuner.plan.plan import Plan

LOOK_EVERY_S = 2.0
"""How often the cluster is asked for its nodes."""

HEAD = "node:__internal_head__"
"""The resource by which Ray marks the head of a cluster."""

UNCOUNTED = ("node:", "object_store_memory")
"""Beginnings of the names of resources that trials do not ask for."""


def nodes() -> tuple[Node, ...]:
    """The nodes of the connected cluster that are alive."""
    return tuple(nodes_by_id().values())


def nodes_by_id() -> dict[str, Node]:
    """The nodes of the connected cluster that are alive, by Ray's ids."""
    import ray

    return {
        node["NodeID"]: Node(
            node["NodeManagerHostname"],
            {k: v for k, v in node["Resources"].items() if not k.startswith(UNCOUNTED)},
            is_head=HEAD in node["Resources"],
        )
        for node in ray.nodes()
        if node["Alive"]
    }


def without_places(
    nodes: Mapping[str, Node], places: Mapping[str, int], request: Mapping[str, float]
) -> dict[str, Node]:
    """``nodes`` without what is kept for good: of each node so many ``places`` that hold ``request``."""
    left = dict(nodes)
    for node_id in places.keys() & nodes.keys():
        has = nodes[node_id].resources
        taken = {name: max(0.0, has.get(name, 0.0) - places[node_id] * amount) for name, amount in request.items()}
        left[node_id] = replace(nodes[node_id], resources={**has, **taken})
    return left


class SlotTracker:
    """The slots of a plan on the nodes that are there now. The Ray that a search starts for itself has one node."""

    def __init__(self, plan: Plan, aside: Collection[str], gpus_aside: Mapping[str, int]) -> None:
        """What both hold may grow.

        ``aside``: the nodes that are put aside, by Ray's ids; ``gpus_aside``: the places of `without_places`.
        """
        self._plan = plan
        self._aside, self._gpus_aside = aside, gpus_aside
        self._slots = plan.slots
        self._next_look = 0.0

    def renew(self, plan: Plan) -> None:
        """The number of trials is another one from now on."""
        self._plan, self._slots, self._next_look = plan, plan.slots, 0.0

    @property
    def slots(self) -> int:
        """At least 1: while no node can take a trial one waits, and says so (`why`). More than fit where an autoscaler
        starts nodes for what waits."""
        changes = self._plan.cluster.address is not None or self._gpus_aside
        if changes and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_EVERY_S
            alive = without_places(nodes_by_id(), self._gpus_aside, self._plan.request)
            there = tuple(node for node_id, node in alive.items() if node_id not in self._aside)
            self._slots = max(1, self._plan.slots_on(there))
        return self._slots
