"""What the user's function returns as metrics, where it returns values without names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ObjectiveError(Exception):
    """The user's function and the experiment do not fit together."""


def objective_names(required: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Of the metrics that every report must hold, each with its key in the experiment, those that are objectives."""
    return tuple(name for name, key in required if key.startswith("objective"))


def named(value: Any, metrics: Sequence[str], whose: str) -> dict[str, float]:
    """A returned number, or one for each of the ``metrics``, by their names.

    Raises ObjectiveError if there are more or fewer, TypeError and ValueError if one is not a number.
    """
    values = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if len(values) != len(metrics):
        expected = f"{len(metrics)}: {', '.join(metrics)}"
        raise ObjectiveError(f"{whose} returns {len(values)} values, but the experiment has {expected}")
    return {name: float(one) for name, one in zip(metrics, values, strict=True)}
