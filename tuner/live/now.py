"""How a run stands at this moment: what its journal does not tell, from live.json and the lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tuner.live.changes import Json, text
from tuner.runs.diagnose import live_status, run_state
from tuner.runs.results import ResultSet

MOST_STATES = 1000
"""Trials whose state is sent at most."""

_WORKING = ("starting", "running", "held", "aside")
"""States of trials that are sent one by one; of the others their number."""


def now(results: ResultSet) -> Json:
    """State, slots, resources, and where each trial that works stands. Raises OSError if the storage fails."""
    if not results.folder.exists():
        return {"state": "gone", "words": f"{results.folder.location} is gone: deleted, moved or not mounted"}
    state, words = run_state(results)
    found: Json = {"state": state, "words": text(words)}
    if state not in ("running", "silent"):
        return found
    live = live_status(results)
    trials = live.get("trials", {})
    states = Counter(trial["state"] for trial in trials.values())
    return found | {
        "slots": live.get("slots", 0),
        "busy": states["starting"] + states["running"],
        "limit": live.get("limit"),
        "paused": live.get("paused", False),
        "queued": states["queued"],
        "resources": _resources(live),
        "states": [*_states(results, trials)][:MOST_STATES],
    }


def _states(results: ResultSet, trials: Mapping[str, Any]) -> list[list[Any]]:
    """Of each trial that works: its number, its state, and since when (Unix time)."""
    known = [(results.get(trial_id), told) for trial_id, told in trials.items() if told["state"] in _WORKING]
    return [[trial.number, told["state"], round(told["since"], 1)] for trial, told in known if trial]


def _resources(live: Mapping[str, Any]) -> list[list[Any]]:
    """CPUs and GPUs of the cluster: name, how many are in use, how many there are."""
    nodes, available = live.get("nodes", []), live.get("available", {})
    totals = {name: sum(node.get(name, 0.0) for node in nodes) for name in ("GPU", "CPU")}
    return [[name, round(total - available.get(name, 0.0), 2), total] for name, total in totals.items() if total]
