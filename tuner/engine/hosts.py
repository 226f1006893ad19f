"""On which host the process of a trial is."""

from __future__ import annotations

from ray import nodes

from tuner.engine.hanging import whereabouts


class Hosts:
    """Names of hosts; each process and each node is asked for once, as neither moves."""

    def __init__(self) -> None:
        self._of_node: dict[str, str] = {}
        self._of_process: dict[str, str] = {}

    def of(self, actor_id: str) -> str:
        """Empty where Ray knows no more of the process."""
        if actor_id not in self._of_process:
            node, _ = whereabouts(actor_id)
            if node not in self._of_node:
                self._of_node = {known["NodeID"]: known["NodeManagerHostname"] for known in nodes()}
            self._of_process[actor_id] = self._of_node.get(node, "")
        return self._of_process[actor_id]
