"""How trials fare on each node: where one is not tried again, and which nodes are put aside.

A node that is sick (a GPU fell off the bus, a disk is full, a driver is broken) fails each trial within seconds, and so
draws one after the other. A configuration that fails looks the same at first. The next
attempt, on another node, tells them apart: if it comes to a report there, the node is to blame.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tuner.runs.failure import Failure

QUICK_S = 60.0
"""An attempt that fails so soon after its start, without a report, may have failed of its node."""
IN_A_ROW = 3
"""After so many failures of this kind in a row on a node, it is put aside, if one of the trials then reported on
another node. Two are too few: in a search of hundreds of trials two fail in a row by chance."""
LOSSES = 3
"""A trial that was on each of the latest so many nodes that were lost is taken for the cause."""


@dataclass(frozen=True)
class SickNode:
    """A node that fails what other nodes do not."""

    node: str
    trials: int
    """How many in a row failed there."""
    words: str
    """The most frequent error."""


class NodeHealth:
    """By Ray's ids of nodes; it knows nothing else of Ray."""

    def __init__(self) -> None:
        self.aside: set[str] = set()
        """The nodes on which no trial starts any more."""
        self._failed_on: dict[str, list[str]] = {}
        """Of each trial that failed: the nodes of its attempts, in order."""
        self._suspected: dict[str, dict[str, str]] = {}
        """Of each node: the trials that failed soon after their start, since the latest report of a trial there, with
        their errors. One that failed so on other nodes too is not among them."""
        self._cleared: set[str] = set()
        """Nodes of which a suspicion came true: a trial that failed there reported elsewhere."""
        self._judged: set[str] = set()
        """Nodes that were found sick: one notice names each."""
        self._lost: dict[str, set[str]] = {}
        """Of each node that was lost, in order: the trials that were on it."""

    def reported(self, trial_id: str, node: str) -> SickNode | None:
        """An attempt on ``node`` came to its first report. Returns the node that must be put aside now, if any."""
        self._suspected.pop(node, None)
        self._cleared.discard(node)
        for other, trials in self._suspected.items():
            if trial_id in trials:
                self._cleared.add(other)
                return self._sick(other)
        return None

    def failed(self, trial_id: str, node: str, failure: Failure, seconds: float | None) -> SickNode | None:
        """An attempt on ``node`` failed ``seconds`` after its start, None: after a report. Returns as `reported`.

        A GPU that failed is the node's, however late.
        """
        before = self._failed_on.setdefault(trial_id, [])
        before.append(node)
        late = failure.kind != "GPU" and (seconds is None or seconds > QUICK_S)
        if late or failure.kind in ("NaN", "bad report", "hung", "node lost"):
            return None
        if set(before) != {node}:  # it fails wherever it is
            for trials in self._suspected.values():
                trials.pop(trial_id, None)
            return None
        self._suspected.setdefault(node, {})[trial_id] = failure.message
        return self._sick(node)

    def _sick(self, node: str) -> SickNode | None:
        trials = self._suspected[node]
        if node in self._judged or node not in self._cleared or len(trials) < IN_A_ROW:
            return None
        self._judged.add(node)
        return SickNode(node, len(trials), Counter(trials.values()).most_common(1)[0][0])

    def is_suspected(self, node: str) -> bool:
        """Whether more than one trial in a row failed there soon after its start."""
        return len(self._suspected.get(node, {})) > 1

    def lost(self, trial_id: str, node: str) -> bool:
        """``node`` is gone, and the trial was on it. Whether the trial is taken for the cause."""
        self._lost.setdefault(node, set()).add(trial_id)
        latest = list(self._lost.values())[-LOSSES:]
        return len(latest) == LOSSES and all(trial_id in trials for trials in latest)

    def failed_on(self, trial_id: str) -> list[str]:
        """The nodes of the trial's failed attempts, the latest first."""
        return self._failed_on.get(trial_id, [])[::-1]

    def avoided(self, trial_id: str) -> list[frozenset[str]]:
        """Sets of nodes on which the trial should not start: the first one that leaves it a node counts."""
        own, aside = self.failed_on(trial_id), frozenset(self.aside)
        return list(dict.fromkeys(found for found in (aside.union(own), aside.union(own[:1]), aside) if found))
