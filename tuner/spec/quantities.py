"""Quantities with units, as a user writes them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def parse_duration(value: Any) -> Any:
    """Seconds from ``20m``, ``1h30m``, ``90s`` or a plain number; anything else is left for pydantic to reject."""
    if isinstance(value, str):
        if not _DURATION.fullmatch(value):
            raise ValueError("a duration is a number of seconds, or a text like 90s, 20m, 1h30m or 2d")
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
    return value


Seconds = Annotated[
    float,
    BeforeValidator(parse_duration),
    Field(gt=0, allow_inf_nan=False),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": "^([0-9.]+[smhd])+$"}]}
    ),
]


def counted(count: float, noun: str) -> str:
    """``1 report``, ``2,000 reports``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_duration(seconds: float) -> str:
    """``3750`` seconds as ``1h02m30s``; under a minute with one decimal."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m{rest:02d}s" if hours else f"{minutes}m{rest:02d}s"


def format_bytes(bytes_: float) -> str:
    """A number of bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if bytes_ < 1024 or unit == "TiB":
            return f"{bytes_:.0f} {unit}" if unit == "B" else f"{bytes_:.1f} {unit}"
        bytes_ /= 1024
    raise AssertionError
