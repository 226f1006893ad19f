"""The `asha` whose rungs tests count on: the first is at 1, from the start to the end of a search."""

from __future__ import annotations

from typing import Any


def promotion(max_t: int, reduction_factor: int) -> dict[str, Any]:
    """By epochs, so that trials pause at their rungs."""
    rungs = {"time_attr": "epoch", "max_t": max_t, "grace_period": 1, "reduction_factor": reduction_factor}
    return {"kind": "asha", "variant": "promotion", **rungs}
