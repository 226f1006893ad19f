"""JSON that anybody may have written."""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 100
"""Upper bound on nesting: what reads or writes the value again must not run out of stack."""


def parsed(text: str | bytes) -> Any:
    """The value of a JSON text; text in it that no encoding can hold (half a surrogate pair) is replaced.

    Raises ValueError if it is not JSON, or is nested deeper than `MAX_DEPTH`.
    """
    text = text if isinstance(text, str) else text.decode()
    try:
        value = json.loads(text)
        if text.count("[") + text.count("{") > MAX_DEPTH:
            _check_depth(value)
        if "\\ud" in text or "\\uD" in text:
            whole = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            value = json.loads(whole)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels") from None
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            return
    raise RecursionError


def _children(value: Any) -> list[Any]:
    found = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [child for child in found if isinstance(child, (dict, list))]
