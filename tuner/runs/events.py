"""The events of a search, as its journal holds them, and what each must tell."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from tuner.runs.consumption import consumption_of
from tuner.runs.file_shapes import MAX_SECONDS, MAX_STEP, MAX_TIMESTAMP, is_id, is_spec
from tuner.runs.repetitions import limits_of
from tuner.runs.trial import Status
from tuner.spec.objective import read_objectives
from tuner.spec.outcome_constraints import metrics_read

Event = dict[str, Any]

_CHECKPOINT = re.compile(r"ray/[0-9A-Za-z_-]{1,100}/[0-9A-Za-z_-][0-9A-Za-z_.-]*")
"""Below the run folder, so that what is deleted or copied is a trial's own."""

_NUMBER, _TEXT_OR_NONE, _WHOLE_OR_NONE = (int, float), (str, type(None)), (int, type(None))

_Types = dict[str, type | tuple[type, ...]]

_FIELDS: dict[str, _Types] = {
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
    "commanded": {
        "id": str,
        "do": str,
        "by": str,
        "sent": _NUMBER,
        "arguments": dict,
        "done": bool,
        "reason": str,
        "trials": list,
    },
    "left": {"interrupted": bool},
    "trial": {"trial": str, "state": dict},
    "recovered": {"elapsed": _NUMBER},
}
"""Of each kind its fields that are never absent. A kind that is not here is of another version, and changes nothing."""

_OPTIONAL: _Types = {
    "host": str,
    "reason": str,
    "request": str,
    "reopened": list,
    "decision": str,
    "micro_batch": _WHOLE_OR_NONE,
    "elapsed": _NUMBER,
    "held": _NUMBER,
    "consumed": dict,
    "changed": dict,
    "aside": bool,
    "planned": int,
}
"""What an event may tell besides."""

_CHANGES: _Types = {"budget": dict, "search_space": dict}
"""The keys of the experiment that a command may replace."""

_ORIGIN: _Types = {"by": str, "parent": _TEXT_OR_NONE, "step": _WHOLE_OR_NONE, "begins_at": int}

_SEGMENT: _Types = {"after": int, "config": dict, "donor": _TEXT_OR_NONE, "donor_step": int}

_FAILURE: _Types = {"kind": str, "message": str, "step": int, "micro_batch": _WHOLE_OR_NONE, "final": bool}

_REPORT: _Types = {name: kinds for name, kinds in _FIELDS["reported"].items() if name != "trial"}
"""In the order in which the event "trial" has them; what was consumed may follow."""

_STATE: _Types = {
    "number": int,
    "config": dict,
    "status": str,
    "reason": str,
    "rung": _WHOLE_OR_NONE,
    "micro_batch": _WHOLE_OR_NONE,
    "host": str,
    "reports": list,
    "segments": list,
    "failures": list,
}
"""Of the event "trial"."""


@dataclass(frozen=True)
class Compared:
    """The metrics by which a search compares its trials: in each of its reports they are finite numbers."""

    values: tuple[str, ...] = ()
    """Those of the objectives and of the outcome constraints."""
    time_attr: str = ""
    is_counted: bool = False
    """Whether trials are compared at equal values of ``time_attr``, so that each report must hold it."""

    @classmethod
    def by(cls, spec: Mapping[str, Any]) -> Compared:
        """Of an experiment that `tuner.runs.file_shapes.spec_of` takes; of an empty one nothing is known."""
        if not spec:
            return cls()
        names = tuple(dict.fromkeys(metrics_read(read_objectives(spec["objective"]), limits_of(spec))))
        scheduler = spec.get("scheduler", {})
        time_attr = scheduler.get("time_attr", "")
        is_counted = scheduler.get("max_t") is not None and time_attr not in ("", "training_iteration")
        return cls(names, time_attr, is_counted)

    def wrong(self, metrics: Mapping[str, Any]) -> str:
        """The first of its metrics that a report's ``metrics`` lack, or that is not such a number; empty if none is.

        ``training_iteration`` may be absent: it is the number of the report.
        """
        for name in self.values:
            if not _is_finite(metrics.get(name)):
                return name
        progress = metrics.get(self.time_attr, None if self.is_counted else 0)
        return "" if _is_finite(progress) and abs(progress) <= MAX_STEP else self.time_attr

    def tells(self, event: Event) -> bool:
        """Whether each report in ``event`` has them."""
        match event["what"]:
            case "reported":
                return not self.wrong(event["metrics"])
            case "trial":
                reports = [dict(zip(_REPORT, report, strict=False)) for report in event["state"]["reports"]]
                return not any(self.wrong(report["metrics"]) for report in reports)
        return True


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, _NUMBER) and math.isfinite(value)
    except OverflowError:
        return False


def is_event(value: Any) -> bool:
    """Whether ``value``, read from a journal, is an event that tells all it must."""
    if not isinstance(value, dict) or type(value.get("n")) is not int or not isinstance(value.get("what"), str):
        return False
    required = _FIELDS.get(value["what"], {})
    if not required.keys() <= value.keys():
        return False
    for name, part in value.items():  # a loop: a resume of a large search comes here a million times
        kinds = required.get(name) or _OPTIONAL.get(name)
        if kinds and not isinstance(part, kinds):
            return False
    if not (0 <= value.get("elapsed", 0) <= MAX_SECONDS and 0 <= value.get("held", 0) <= MAX_SECONDS):
        return False
    if not all(isinstance(trial_id, str) for trial_id in value.get("reopened", ())):
        return False
    if value["what"] in ("began", "extended") and not is_spec(value["spec"]):
        return False
    if value["what"] == "ended" and value["status"] not in ("completed", "stopped", "failed"):
        return False
    if value["what"] == "trial" and not _is_state(value["state"]):
        return False
    if value["what"] == "reported" and not _is_timed(value):
        return False
    if "consumed" in value and not _is_consumption(value["consumed"]):
        return False
    if "trial" in value and not (isinstance(value["trial"], str) and is_id(value["trial"])):
        return False
    if value["what"] == "commanded" and not _is_commanded(value):
        return False
    if not _is_origin(value.get("origin")):
        return False
    return is_checkpoint(value.get("checkpoint")) and (value.get("segment") is None or _has(value["segment"], _SEGMENT))


def _is_commanded(event: Event) -> bool:
    changed = event.get("changed", {})
    return (
        0 <= event["sent"] <= MAX_TIMESTAMP
        and all(isinstance(trial_id, str) for trial_id in event["trials"])
        and all(name in _CHANGES and isinstance(value, _CHANGES[name]) for name, value in changed.items())
    )


def _is_origin(origin: Any) -> bool:
    """Whether it is that of a trial; journals of older versions have none."""
    if origin is None:
        return True
    if not _has(origin, _ORIGIN) or not 0 <= origin["begins_at"] <= MAX_STEP:
        return False
    return origin["parent"] is None or is_id(origin["parent"])


def _is_state(state: Event) -> bool:
    known = {name: value for name, value in state.items() if name != "origin"}
    return (
        _has(known, _STATE)
        and _is_origin(state.get("origin"))
        and state["status"] in get_args(Status)
        and all(map(_is_report, state["reports"]))
        and all(_has(segment, _SEGMENT) for segment in state["segments"])
        and all(_has(failure, _FAILURE) for failure in state["failures"])
    )


def _is_report(values: Any) -> bool:
    if not isinstance(values, list) or not len(_REPORT) <= len(values) <= len(_REPORT) + 1:
        return False
    report, consumed = dict(zip(_REPORT, values, strict=False)), values[len(_REPORT) :]
    return (
        _tells(report, _REPORT)
        and _is_timed(report)
        and is_checkpoint(report["checkpoint"])
        and all(map(_is_consumption, consumed))
    )


def _is_consumption(value: Any) -> bool:
    try:
        consumption_of(value)
    except (ValueError, AttributeError):
        return False
    return True


def _is_timed(report: Event) -> bool:
    """Whether its number, running time and time of day are such."""
    timestamp: float = report["timestamp"]
    if not (0 <= timestamp <= MAX_TIMESTAMP or timestamp != timestamp):  # NaN where only the best reports are known
        return False
    return bool(0 <= report["step"] <= MAX_STEP and 0 <= report["seconds"] <= MAX_SECONDS)


def is_checkpoint(value: Any) -> bool:
    """Whether an event may name this as the folder of a checkpoint."""
    return value is None or (isinstance(value, str) and _CHECKPOINT.fullmatch(value) is not None)


def _has(value: Any, fields: _Types) -> bool:
    """Whether ``value`` is a mapping of these ``fields`` and no others."""
    return isinstance(value, dict) and value.keys() == fields.keys() and _tells(value, fields)


def _tells(value: Mapping[str, Any], fields: _Types) -> bool:
    return all(name in value and isinstance(value[name], kinds) for name, kinds in fields.items())
