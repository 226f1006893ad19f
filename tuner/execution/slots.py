"""How many trials run at once, while nodes come and go."""

from __future__ import annotations

import time
from collections.abc import Collection

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


class SlotTracker:
    """The slots of a plan on the nodes that are there now. The Ray that a search starts for itself has one node."""

    def __init__(self, plan: Plan, aside: Collection[str]) -> None:
        """``aside``: the nodes that are put aside, by Ray's ids; it may grow."""
        self._plan = plan
        self._aside = aside
        self._slots = plan.slots
        self._next_look = 0.0

    @property
    def slots(self) -> int:
        """At least 1: while no node can take a trial one waits, and says so (`why`). More than fit where an autoscaler
        starts nodes for what waits."""
        if self._plan.cluster.address is not None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_EVERY_S
            there = tuple(node for node_id, node in nodes_by_id().items() if node_id not in self._aside)
            self._slots = max(1, self._plan.slots_on(there))
        return self._slots
