"""Plain values: when two of them are the same, and how a line of YAML writes them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import chain
from typing import Any


def is_number(value: Any) -> bool:
    """Whether ``value`` is an int or a float; a boolean is neither."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def value_key(value: Any) -> Hashable:
    """Equal for two values exactly where a configuration cannot tell them apart: 1 is 1.0, but never True."""
    if value is None or isinstance(value, (bool, str)):
        return type(value).__name__, value
    if isinstance(value, (int, float)):
        return "number", "nan" if value != value else value
    if isinstance(value, (list, tuple)):
        return "list", tuple(value_key(item) for item in value)
    if isinstance(value, dict):
        return "mapping", frozenset((value_key(key), value_key(item)) for key, item in value.items())
    try:
        hash(value)
    except TypeError:  # an array answers == with an array: what cannot be hashed is equal only to itself
        return "object", id(value)
    return "object", value


def without_cache(self: Any) -> dict[str, Any]:
    """``__getstate__`` of a dataclass that caches an `identity`, which may be an ``id``: it holds in one process."""
    return {field.name: getattr(self, field.name) for field in fields(self)}


def contains(values: tuple[Any, ...], value: Any) -> bool:
    """Whether ``value`` is one of ``values``, in the sense of `identity`."""
    return value_key(value) in {value_key(known) for known in values}


def index_of(values: tuple[Any, ...], value: Any) -> int:
    """The position of ``value`` in ``values``, in the sense of `identity`. Raises ValueError if it is not there."""
    return [value_key(known) for known in values].index(value_key(value))


_BRIEF = 200
"""Characters of a value that a message shows."""


def to_inline_yaml(value: Any) -> str:
    """``value`` as YAML writes it in one line."""
    return "".join(_pieces(value))


def brief(value: Any) -> str:
    """The text of `show`, cut off if it is long: for messages, and fast however large ``value`` is."""
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > _BRIEF:
            return f"{text[:_BRIEF]} …"
    return text


def _pieces(value: Any) -> Iterator[str]:
    """What `show` gives, from its beginning on."""
    if isinstance(value, (list, tuple)):
        yield from _listed("[]", (_pieces(item) for item in value))
    elif isinstance(value, dict):
        yield from _listed("{}", (chain(_pieces(key), [": "], _pieces(item)) for key, item in value.items()))
    elif isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z_][\w./-]*", value) and value.lower() not in ("true", "false", "null")
        yield value if plain else json.dumps(value, ensure_ascii=False)
    elif value is None or isinstance(value, bool):
        yield json.dumps(value)
    elif isinstance(value, float) and not math.isfinite(value):
        yield ".nan" if value != value else ".inf" if value > 0 else "-.inf"
    else:
        yield represented(value)


def represented(value: Any) -> str:
    """Its ``repr``, which for an object of the user's may raise anything."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001
        return object.__repr__(value)


def _listed(brackets: str, items: Iterable[Iterable[str]]) -> Iterator[str]:
    yield brackets[0]
    for i, pieces in enumerate(items):
        if i > 0:
            yield ", "
        yield from pieces
    yield brackets[1]


def format_number(value: Any) -> str:
    """A number with four significant digits; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, float):
        return "" if value is None else str(value)
    return f"{value:.4g}"


def metrics_line(metrics: Mapping[str, Any]) -> str:
    """``val_accuracy 0.9821  val_loss 0.0712``."""
    return "  ".join(
        f"{name} {f'{value:.6g}' if isinstance(value, float) else value}" for name, value in metrics.items()
    )
