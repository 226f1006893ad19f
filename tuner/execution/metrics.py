"""What a trainable reported, without what Ray adds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

# fmt: off
_RAY_KEYS = frozenset([
    "training_iteration", "time_this_iter_s", "time_total_s", "time_since_restore", "iterations_since_restore",
    "timesteps_since_restore", "timesteps_this_iter", "timesteps_total", "episodes_this_iter", "episodes_total",
    "timestamp", "date", "pid", "hostname", "node_ip", "config", "done", "trial_id", "experiment_id",
    "experiment_tag", "should_checkpoint", "checkpoint_dir_name", "__duplicate__", "trial_log_path",
])
# fmt: on


def flat_metrics(result: dict[str, Any]) -> dict[str, Any]:
    """What the trainable itself reported, without what Ray adds; nested names joined by ``/`` as Ray does."""
    return dict(_flat({name: value for name, value in result.items() if name not in _RAY_KEYS}, ""))


def _flat(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}/")
        else:
            plain = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
            yield sys.intern(f"{prefix}{name}"), value.item() if plain else value  # one name for all reports
