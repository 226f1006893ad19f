"""What the live page gets of a run: all that changed since an event, small enough to be sent several times a second."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from pydantic import ValidationError

from tuner.experiment.spec import Budget
from tuner.live.known_rungs import known_rungs
from tuner.live.live_run import Line, LiveRun, Told
from tuner.runs.feasibility import no_winner, share_feasible, why
from tuner.runs.results import ResultSet
from tuner.runs.trial import Origin, Trial
from tuner.search.usage import unit_of
from tuner.spec.configuration import flat
from tuner.spec.space.grammar import FORMS
from tuner.spec.values import brief, format_number
from tuner.visualization.style import EXTREME
from tuner.visualization.text_tables import failed_attempts, savings_line

Json = dict[str, Any]

LONGEST = 300
"""Characters of a text at most: names, reasons and messages come from the code of others."""

MOST_DOMAINS, LONGEST_DOMAIN, _MOST_GROUPS = 200, 2000, 20
"""Domains of a search space that a page gets, the characters of one, and the groups in which one lies, at most."""

_DEEPEST = 100
"""Levels of a value that holds infinity or NaN, at most."""

ROW = (
    "number",
    "status",
    "rung",
    "host",
    "x",
    "last",
    "best",
    "at",
    "step",
    "seconds",
    "failures",
    "why",
    "gpu",
    "feasible",
)
"""The fields of a trial that change while it runs. ``last`` and ``best`` are texts, the latter one a compared metric.
``at``: seconds of the search at its best report, ``step``: the progress there. ``gpu``: use in per cent. ``feasible``:
whether its best report keeps to the constraints."""


def cursor(run: LiveRun) -> str:
    """Stands for all that ``run`` has read."""
    return f"{run.telling}.{run.number}"


def event_of(run: LiveRun, since: str) -> int | None:
    """The number of the event that a cursor stands for; None if it is not one of this journal, as it is now."""
    telling, _, number = since.partition(".")
    if telling != run.telling or not (number.isascii() and number.isdigit()) or len(number) > 18:
        return None
    return int(number) if int(number) <= run.number else None


def changes(run: LiveRun, since: str) -> Json:
    """All that changed after the cursor ``since``; the whole run if the cursor is not known."""
    known = event_of(run, since)
    number = known or 0
    found: Json = {"id": cursor(run), "whole": known is None, "elapsed": round(run.elapsed, 2)}
    if known is None or run.described > number:
        found["run"] = _description(run)
    touched = [*_touched(run, number)]
    found["trials"] = [_trial(run, line) for line in touched if line.configured > number]
    found["rows"] = [_row(run.results, line) for line in touched]
    found["curves"] = [*_curves(touched, number)]
    found["best"] = [[_round(one.seconds), one.value, one.trial] for one in run.improvements if one.event > number]
    start = run.busy.since(number)
    if known is None or start < len(run.busy.xs):
        found["busy"] = [start, run.busy.xs[start:], run.busy.ys[start:]]
    found["failures"] = [_failure(run.results, told) for told in run.failures if told.event > number]
    found["commands"] = [_command(run.results, told) for told in run.commands if told.event > number]
    return {name: value for name, value in found.items() if value != []}


def _touched(run: LiveRun, number: int) -> Iterator[Line]:
    """The trials that changed after an event, the latest first."""
    for line in reversed(run.lines.values()):
        if line.changed <= number:
            return
        yield line


def _description(run: LiveRun) -> Json:
    """What stays the same for long."""
    results, scheduler = run.results, run.results.section("scheduler")
    unit = unit_of(results)
    return {
        "name": results.name,
        "objectives": [[text(one.metric), one.mode] for one in results.objectives],
        "metrics": [text(name) for name in results.compared_metrics],
        "unit": "report" if unit == "training_iteration" else text(unit),
        "max_t": scheduler.get("max_t"),
        "rungs": known_rungs(scheduler),
        "algorithms": [text(results.section(name).get("kind", "")) for name in ("search", "scheduler")],
        "parameters": [text(name) for name in run.parameters],
        "space": _space(results),
        "budget": _budget(results),
        "notices": [text(notice) for notice in results.notices],
        "extreme": EXTREME,
        "fields": ROW,
    }


def _space(results: ResultSet) -> Json:
    """The domain of each parameter, by its dotted name; none if the space is written in Python.

    A domain that is too long for a field of a form is left out, as is one that JSON does not have.
    """
    space = results.spec.get("search_space")
    known = islice(_domains(space, "", _MOST_GROUPS), MOST_DOMAINS) if isinstance(space, dict) else ()
    return {name: domain for name, domain in known if len(name) <= LONGEST and _is_short(domain)}


def _domains(space: Mapping[str, Any], prefix: str, groups: int) -> Iterator[tuple[str, Any]]:
    for name, value in space.items():
        if groups and isinstance(value, Mapping) and value and not FORMS.keys() & value.keys():
            yield from _domains(value, f"{prefix}{name}.", groups - 1)
        else:
            yield f"{prefix}{name}", value


def _is_short(domain: Any) -> bool:
    try:
        return len(json.dumps(domain, allow_nan=False)) <= LONGEST_DOMAIN
    except (ValueError, RecursionError):
        return False


def _budget(results: ResultSet) -> Json:
    try:
        return Budget.model_validate(results.section("budget")).model_dump(exclude_none=True)
    except ValidationError:  # of another version
        return {}


def head(run: LiveRun) -> Json:
    """How the search stands as a whole. It looks at all trials, so it is too slow to be made for each event."""
    results = run.results
    front = results.front
    started = len(results.trials) - results.count("pending")
    without = "" if front else no_winner(results)
    told = [savings_line(results), failed_attempts(results), share_feasible(results), without]
    return {
        "front": [trial.number for trial in front] if results.has_front else [],
        "best": front[0].number if front else None,
        "counts": Counter(trial.status for trial in results.trials),
        "started": started,
        "epochs": run.usage.epochs,
        "held": round(run.usage.held, 1),
        "lines": [text(line) for line in told if line],
        "damage": run.damage,
    }


def _trial(run: LiveRun, line: Line) -> list[Any]:
    """Number, id, the value of each parameter as text (null for one that it lacks), and who added it."""
    trial = line.trial
    told = {run.parameters[name]: shown(value) for name, value in flat(trial.config) if name in run.parameters}
    values = [told.get(i) for i in range(1 + max(told, default=-1))]
    return [trial.number, trial.id, values, _origin(run.results, trial.origin)]


def _origin(results: ResultSet, origin: Origin | None) -> str:
    """Who added the trial, in words; empty if the searcher suggested it."""
    if origin is None:
        return ""
    parent = results.get(origin.parent or "")
    started = f", from its report {origin.step}" if origin.step is not None else ""
    return text(f"{origin.by}{f': a clone of #{parent.number}{started}' if parent else ''}")


def shown(value: Any) -> str:
    """A value of a configuration."""
    return text(format_number(value) if isinstance(value, (int, float, str)) else brief(value))


def _row(results: ResultSet, line: Line) -> list[Any]:
    trial = line.trial
    best = results.values(trial.best) if trial.best else {}
    last = trial.reports[-1] if trial.reports else None
    unit, consumed = unit_of(results), last.consumption if last else None
    return [
        trial.number,
        trial.status,
        trial.rung,
        text(trial.host),
        last.progress(unit) if last else None,
        format_number(results.value(last)) if last else "",
        [format_number(value) for value in best.values()],
        _round(line.best_at),
        trial.best.progress(unit) if trial.best else None,
        _round(trial.seconds),
        len(trial.failures),
        text(why(results, trial)),
        consumed.gpu_use if consumed else None,
        trial.best is not None and results.is_feasible(trial.best),
    ]


def _curves(touched: Sequence[Line], number: int) -> Iterator[list[Any]]:
    """Of each curve with new points: the trial's number, the first new point's place, and the points from it on."""
    for line in touched:
        start = line.curve.since(number)
        if start < len(line.curve.xs):
            yield [line.trial.number, start, line.curve.xs[start:], line.curve.ys[start:]]


def _failure(results: ResultSet, told: Told) -> Json:
    event = told.fields
    return {
        "trial": _number(results, event["trial"]),
        "step": event["step"],
        "kind": text(event["kind"]),
        "message": text(event["message"]),
        "retried": event["retried"],
        "at": _round(told.seconds),
    }


def _command(results: ResultSet, told: Told) -> Json:
    """A command as the page lists it. Journals of other versions may lack any of its fields."""
    event = told.fields
    trials = event.get("trials")
    return {
        "id": text(event.get("id", "")),
        "do": text(event.get("do", "")),
        "by": text(event.get("by", "")),
        "with": _arguments(event.get("arguments")),
        "done": bool(event.get("done")),
        "reason": text(event.get("reason", "")),
        "trials": [_number(results, one) for one in trials if isinstance(one, str)] if isinstance(trials, list) else [],
        "at": _round(told.seconds),
    }


def _arguments(arguments: Any) -> str:
    """Those of a command, in words; its trial has its own place."""
    if not isinstance(arguments, Mapping):
        return ""
    return text(", ".join(f"{name} {brief(value)}" for name, value in flat(arguments) if name != "trial"))


def _number(results: ResultSet, trial_id: str) -> int | None:
    trial: Trial | None = results.get(trial_id)
    return trial.number if trial else None


def text(value: object) -> str:
    """At most `LONGEST` characters of it."""
    told = str(value)
    return told if len(told) <= LONGEST else f"{told[: LONGEST - 1]}…"


def _round(seconds: float) -> float:
    return round(seconds, 1)


def encoded(value: Json) -> str:
    """As one line of JSON, which a browser reads: infinity and NaN are null."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value, _DEEPEST), separators=(",", ":"), allow_nan=False)


def _finite(value: Any, levels: int) -> Any:
    match value:
        case dict() | list() | tuple() if not levels:
            return None
        case dict():
            return {name: _finite(one, levels - 1) for name, one in value.items()}
        case list() | tuple():
            return [_finite(one, levels - 1) for one in value]
        case float() if value != value or abs(value) == float("inf"):
            return None
    return value
