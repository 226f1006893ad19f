"""The node and process of a trial, and what Ray knows of its death."""

from __future__ import annotations

from typing import Any, NamedTuple

from ray import nodes


class ActorLocation(NamedTuple):
    """A process of Ray's."""

    node: str
    """Ray's id of the node; empty where Ray knows no more of the process."""
    pid: int
    """0 where Ray knows no more of it, or it has not started."""
    address: tuple[str, int]
    """At which other processes of Ray reach it."""


def locate_actor(actor_id: str) -> ActorLocation:
    """The place of an actor, dead or alive.

    From Ray's control store: the process itself may be beyond answering, and may not have reported yet.
    """
    from ray._private import state

    return _place(state.actors(actor_id) or {})


def owned_by(owner: ActorLocation) -> list[ActorLocation]:
    """The living actors that the process of ``owner`` has started."""
    from ray._private import state

    alive = state.actors(None, None, "ALIVE").values()
    return [_place(actor) for actor in alive if _address(actor.get("OwnerAddress", {})) == owner.address]


def cause_of_death(actor_id: str) -> str:
    """What Ray's control store says of how an actor died; empty while it believes it alive."""
    from ray._private import state

    known = state.actors(actor_id) or {}
    return (str(known.get("DeathCause")) or "unknown") if known.get("State") == "DEAD" else ""


def _place(known: dict[str, Any]) -> ActorLocation:
    address = known.get("Address", {})
    return ActorLocation(str(address.get("NodeID", "")), int(known.get("Pid", 0)), _address(address))


def _address(address: dict[str, Any]) -> tuple[str, int]:
    return str(address.get("IPAddress", "")), int(address.get("Port", 0))


class ActorHosts:
    """Names of hosts; each process and each node is asked for once, as neither moves."""

    def __init__(self) -> None:
        self._of_node: dict[str, str] = {}
        self._nodes: dict[str, str] = {}

    def of(self, actor_id: str) -> str:
        """Empty where Ray knows no more of the process."""
        return self.of_node(self.node(actor_id))

    def node(self, actor_id: str) -> str:
        """Ray's id of the node; empty if it knows no more of the process."""
        if actor_id not in self._nodes:
            self._nodes[actor_id] = locate_actor(actor_id).node
        return self._nodes[actor_id]

    def of_node(self, node: str) -> str:
        """Empty where Ray knows no such node."""
        if node not in self._of_node:
            self._of_node = {known["NodeID"]: known["NodeManagerHostname"] for known in nodes()}
        return self._of_node.get(node, "")
