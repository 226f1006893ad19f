"""The events of a search, as its journal holds them, and what each must tell."""

from __future__ import annotations

import re
from typing import Any

from tuner.stored import is_spec

Event = dict[str, Any]

_TRIAL_ID = re.compile(r"[0-9A-Za-z_-]{1,100}")
"""A trial's id is the name of its folder too."""

_CHECKPOINT = re.compile(r"ray/[0-9A-Za-z_-]{1,100}/[0-9A-Za-z_-][0-9A-Za-z_.-]*")
"""Below the run folder, so that what is deleted or copied is a trial's own."""

_NUMBER, _TEXT_OR_NONE, _WHOLE_OR_NONE = (int, float), (str, type(None)), (int, type(None))

_FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "began": {"spec": dict, "provenance": dict},
    "extended": {"spec": dict},
    "suggested": {"trial": str, "config": dict},
    "started": {"trial": str},
    "reported": {
        "trial": str,
        "step": int,
        "seconds": _NUMBER,
        "timestamp": _NUMBER,
        "metrics": dict,
        "checkpoint": _TEXT_OR_NONE,
    },
    "lost": {"trial": str, "checkpoint": str},
    "paused": {"trial": str},
    "asked": {"more": bool},
    "failed attempt": {"trial": str, "kind": str, "message": str, "step": int, "retried": bool},
    "ended": {"trial": str, "status": str, "reason": str, "rung": _WHOLE_OR_NONE},
    "reopened": {"trial": str},
    "left": {"interrupted": bool},
    "trial": {"trial": str, "state": dict},
    "recovered": {"elapsed": _NUMBER},
}
"""Of each kind its fields that are never absent. A kind that is not here is of another version, and changes nothing."""

_SEGMENT: dict[str, type | tuple[type, ...]] = {
    "after": int,
    "config": dict,
    "donor": _TEXT_OR_NONE,
    "donor_step": int,
}


def is_event(value: Any) -> bool:
    """Whether ``value``, read from a journal, is an event that tells all it must."""
    if not isinstance(value, dict) or type(value.get("n")) is not int or not isinstance(value.get("what"), str):
        return False
    if not _tells(value, _FIELDS.get(value["what"], {})):
        return False
    if value["what"] in ("began", "extended") and not is_spec(value["spec"]):
        return False
    if value["what"] == "ended" and value["status"] not in ("completed", "stopped", "failed"):
        return False
    if "trial" in value and not (isinstance(value["trial"], str) and _TRIAL_ID.fullmatch(value["trial"])):
        return False
    checkpoint, segment = value.get("checkpoint"), value.get("segment")
    return (checkpoint is None or bool(_CHECKPOINT.fullmatch(checkpoint))) and (
        segment is None
        or (isinstance(segment, dict) and segment.keys() == _SEGMENT.keys() and _tells(segment, _SEGMENT))
    )


def _tells(value: Event, fields: dict[str, type | tuple[type, ...]]) -> bool:
    return all(name in value and isinstance(value[name], kinds) for name, kinds in fields.items())
