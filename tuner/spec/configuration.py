"""A configuration: nested dicts of plain values by parameter name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Configuration = dict[str, Any]


def merge(base: Configuration, over: Configuration) -> Configuration:
    """``base`` with the values of ``over``, nested dicts merged key by key; neither is changed."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each value with its dotted name, in order; an empty dict is a value."""
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def nested(values: Mapping[str, Any]) -> Configuration:
    """``values`` with ``{"a.b": 1}`` as ``{"a": {"b": 1}}``."""
    found: Configuration = {}
    for name, value in values.items():
        *groups, last = name.split(".")
        inner: Any = nested(value) if isinstance(value, Mapping) else value
        for group in reversed([*groups[1:], last]) if groups else ():
            inner = {group: inner}
        found = merge(found, {groups[0] if groups else last: inner})
    return found
