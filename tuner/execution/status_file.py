"""What a running search tells other processes: where each of its trials stands, in a file of the run folder."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import ray
from ray.tune.experiment import Trial as RayTrial

from tuner.runs.results import LIVE, write_json

if TYPE_CHECKING:
    from tuner.execution.controller import Controller

WRITE_EVERY_S = 5.0


class StatusFile:
    """Writes ``live.json`` every `WRITE_EVERY_S`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._next = 0.0
        self._since: dict[str, tuple[str, float]] = {}
        """Of each trial that has not ended: its state, and since when."""

    def tick(self) -> None:
        """Called in every round of the control loop."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + WRITE_EVERY_S
        controller = self._controller
        now = time.time()
        states = {trial.trial_id: self._state(trial) for trial in controller.get_live_trials()}
        before = self._since
        self._since = {
            trial_id: (state, before[trial_id][1] if before.get(trial_id, ("", 0))[0] == state else now)
            for trial_id, state in states.items()
        }
        written: dict[str, Any] = {
            "time": now,
            "slots": controller.slots,
            "request": dict(controller.plan.request),
            "nodes": [
                {name: amount for name, amount in node["Resources"].items() if not name.startswith("node:")}
                for node in ray.nodes()
                if node["Alive"]
            ],
            "available": {k: v for k, v in ray.available_resources().items() if not k.startswith("node:")},
            "more": not controller._search_alg.is_finished(),
            "trials": {trial_id: {"state": s, "since": since} for trial_id, (s, since) in self._since.items()},
        }
        recorder = controller.recorder
        recorder.storing.attempt(lambda: write_json(recorder.results.folder, LIVE, written))

    def _state(self, trial: RayTrial) -> str:
        if trial in self._controller._held:
            return "held"
        if trial.status == RayTrial.PENDING:
            return "starting" if trial in self._controller._trial_to_actor else "queued"
        return str(trial.status).lower()
