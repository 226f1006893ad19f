"""What a running search tells other processes: where each of its trials stands, in a file of the run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import ray

from tuner.execution.recorder import Recorder
from tuner.runs.results import LIVE, write_json

WRITE_EVERY_S = 5.0


class StatusFile:
    """Writes ``live.json`` every `WRITE_EVERY_S`."""

    def __init__(self, recorder: Recorder, request: Mapping[str, float], workers: int) -> None:
        self._recorder = recorder
        self._request = request
        """Resources of one worker of a trial."""
        self._workers = workers
        self._next = 0.0
        self._since: dict[str, tuple[str, float]] = {}
        """Of each trial that has not ended: its state, and since when."""

    def is_due(self) -> bool:
        """Whether the file is to be written again. Called in every round of the control loop."""
        return time.monotonic() >= self._next

    def hurry(self) -> None:
        """Lets the next look write the file at once."""
        self._next = 0.0

    def write(self, states: Mapping[str, str], slots: int, *, more: bool) -> None:
        """Writes the file.

        Args:
            states: Of each trial that has not ended: queued, starting, running, paused, aside or held.
            slots: Trials that run at once at most.
            more: Whether the searcher has more trials to suggest.
        """
        self._next = time.monotonic() + WRITE_EVERY_S
        now, before = time.time(), self._since
        self._since = {
            trial_id: (state, before[trial_id][1] if before.get(trial_id, ("", 0))[0] == state else now)
            for trial_id, state in states.items()
        }
        written: dict[str, Any] = {
            "time": now,
            "slots": slots,
            "request": dict(self._request),
            "workers": self._workers,
            "nodes": [
                {name: amount for name, amount in node["Resources"].items() if not name.startswith("node:")}
                for node in ray.nodes()
                if node["Alive"]
            ],
            "available": {k: v for k, v in ray.available_resources().items() if not k.startswith("node:")},
            "more": more,
            "paused": self._recorder.state.orders.paused,
            "limit": self._recorder.state.orders.limit,
            "trials": {trial_id: {"state": s, "since": since} for trial_id, (s, since) in self._since.items()},
        }
        folder = self._recorder.results.folder
        self._recorder.storing.attempt(lambda: write_json(folder, LIVE, written))
