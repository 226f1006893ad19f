"""The rungs of a search, as its experiment and its trials tell them; no code of a user is run for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tuner.schedulers.asha.spec import Asha
from tuner.schedulers.base import SchedulerSpec
from tuner.schedulers.bohb import Bohb
from tuner.schedulers.hyperband import HyperBand

_LADDERS: dict[str, type[SchedulerSpec]] = {"asha": Asha, "bohb": Bohb, "hyperband": HyperBand}

MOST = 30
"""Rungs at most: ``grace_period: auto`` has many that never become one."""


def known_rungs(scheduler: Mapping[str, Any]) -> list[int]:
    """Those that are certain before a trial has reached one; none of a scheduler that is not one of tuner's own."""
    kind = _LADDERS.get(scheduler.get("kind", ""))
    if kind is None or scheduler.get("grace_period") == "auto":
        return []
    try:
        return [*kind.model_validate(scheduler).rungs()][-MOST:]
    except ValidationError:  # of another version
        return []
