"""Why a search stands still: what each of its trials waits for, and what would help."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tuner.plan.cluster import format_resources
from tuner.runs import file_shapes
from tuner.runs.events import Event
from tuner.runs.file_shapes import MAX_CONFIG_BYTES, mapping
from tuner.runs.journal import last_event
from tuner.runs.results import LIVE, ResultSet, how_to_continue, why_and_remedy
from tuner.runs.trial import Trial
from tuner.spec.quantities import format_duration
from tuner.storage.folder import RunFolder
from tuner.storage.lock import holder, last_holder

_STALE_S = 30.0
"""A driver that is alive says so more often than that."""


RunState = Literal["running", "silent", "dead", "interrupted", "finished"]
"""``silent``: its process lives and does not answer."""


@dataclass(frozen=True)
class Diagnosis:
    """How a run stands."""

    state: RunState
    run: str
    """That in words, with what would help."""
    last_event: str
    trials: tuple[tuple[Trial, str], ...]
    """Each trial that has not ended, with what it waits for."""


def explain(results: ResultSet) -> Diagnosis:
    """``results`` are those of the journal (`tuner.runs.loading.load_latest`).

    The lock knows whether their process lives.
    """
    live = live_status(results)
    state, words = run_state(results)
    open_trials = [t for t in results.trials if not t.has_ended]
    waiting = tuple((t, _trial(t, results, state, live)) for t in open_trials)
    return Diagnosis(state, words, _last(results, last_event(results.folder)), waiting)


def live_status(results: ResultSet) -> Mapping[str, Any]:
    """The content of live.json; empty if nothing can be read."""
    try:
        return read_live(results.folder)
    except OSError:
        return {}


def read_live(folder: RunFolder) -> Mapping[str, Any]:
    """The content of live.json; empty if there is none, or it is damaged. Raises OSError if it cannot be read."""
    try:
        told, _ = mapping(file_shapes.Live, folder.read(LIVE, MAX_CONFIG_BYTES))
    except (ValueError, FileNotFoundError):
        return {}
    return told


def held_by_trial(live: Mapping[str, Any]) -> dict[str, float]:
    """What all workers of one trial of a search hold, by Ray's names; empty if live.json does not tell."""
    return {name: amount * live.get("workers", 1) for name, amount in live.get("request", {}).items()}


def run_state(results: ResultSet) -> tuple[RunState, str]:
    """`Diagnosis.state` and `Diagnosis.run`."""
    held, live = holder(results.folder), live_status(results)
    resume = how_to_continue(results)
    interrupted = results.provenance.get("interrupted")
    if held is not None:
        who = f"process {held.get('pid', '?')} on {held.get('host', '?')}"
        silent = time.time() - live.get("time", held.get("time", 0.0))
        if silent < _STALE_S:
            paused = ", and is paused" if live.get("paused") else ""
            return "running", f"running: {who}{paused}"
        return "silent", (
            f"{who} has said nothing for {format_duration(silent)}: its Ray may be gone or the machine overloaded; see "
            f"{results.folder.location}/run.log, or stop it (python -m tuner stop {results.folder.quoted}) and "
            f"continue: {resume}"
        )
    if interrupted is False:
        by = results.provenance.get("ended_by")
        return "finished", f"finished: the search came to its end{f' ({by})' if by else ''}"
    if interrupted:
        return "interrupted", f"interrupted{why_and_remedy(results)}"
    return "dead", f"dead: {_gone(results.folder)}; to continue: {resume}"


def _gone(folder: RunFolder) -> str:
    """What became of the process of a run that has not ended."""
    last, here = last_holder(folder), socket.gethostname()
    if last.get("host", here) == here:
        return "the process that ran it is gone (killed, crashed or rebooted)"
    who = f"process {last.get('pid', '?')} on {last['host']}"
    return f"{who} is gone, or this is a copy of its run"


def _last(results: ResultSet, event: Event | None) -> str:
    if event is None:
        return "nothing has happened yet"
    trial = results.get(event.get("trial", ""))
    whose = f" trial {trial.label if trial else event['trial']}" if "trial" in event else ""
    since = f"{format_duration(event.get('elapsed', 0.0))} into the search"
    match event["what"]:
        case "commanded":
            refused = "" if event["done"] else f", refused: {event['reason']}"
            return f"{event['by']} commanded {event['do']}{refused}, {since}"
        case "reported":
            return f"reported{whose} step {event['step']}, then {event.get('decision', 'continue')}, {since}"
        case "ended":
            return f"ended{whose} {event['status']} {event['reason']}".rstrip() + f", {since}"
        case "left":
            why = f": {event['reason']}" if event.get("reason") else ""
            return f"left {f'interrupted{why}' if event['interrupted'] else 'at its end'}, {since}"
    return f"{event['what']}{whose}, {since}"


def _trial(trial: Trial, results: ResultSet, state: str, live: Mapping[str, Any]) -> str:
    if state not in ("running", "silent"):
        if trial.steps:
            return f"stopped after step {trial.steps}; continues from its last checkpoint when the run is resumed"
        return "has not reported; starts when the run is resumed"
    told = live.get("trials", {}).get(trial.id)
    if told is None:
        return "is about to be queued"
    since = format_duration(max(time.time() - told["since"], 0.0))
    match told["state"]:
        case "running":
            return f"runs, {f'step {trial.steps}' if trial.steps else 'no report yet'}"
        case "starting":
            return f"its process is starting ({since})"
        case "held":
            return f"waits before it is tried again, as it lost one node after another ({since})"
        case "aside":
            return f"waits for a slot ({since}): {_limited(live)}"
        case "paused":
            return f"waits at its rung ({since}): continues when it is among the best there; {_unblocks_pause(live)}"
    return f"queued for {since}: {_lacking_resource(live)}"


def _limited(live: Mapping[str, Any]) -> str:
    """The order of people that lets a trial wait."""
    if live.get("paused"):
        return "the search is paused, until somebody continues it"
    if live.get("limit") is not None:
        return f"people let {live['limit']} run at once"
    return "it starts with the next free one"


def _unblocks_pause(live: Mapping[str, Any]) -> str:
    return (
        "more trials are still to come"
        if live.get("more")
        else "no more trials come: decided when the running ones end"
    )


def _lacking_resource(live: Mapping[str, Any]) -> str:
    """The reason why a trial is queued: no node has a resource, a resource is all in use, or no slot is free."""
    request, nodes, available = (live.get(name, {}) for name in ("request", "nodes", "available"))
    for name, amount in request.items():
        most = max((node.get(name, 0.0) for node in nodes), default=0.0)
        if most < amount:
            have = format_resources({name: most}) if most else f"no {name}"
            return (
                f"needs {format_resources({name: amount})}, and no node that is alive has more than {have}: "
                f"a node was lost, or has yet to come"
            )
    for name, amount in request.items():
        if available.get(name, 0.0) < amount:
            total = sum(node.get(name, 0.0) for node in nodes)
            have = format_resources({name: total})
            return f"needs {format_resources({name: amount})}; the cluster has {have}, all in use until a trial ends"
    return f"all {live.get('slots', '?')} slots are taken until a trial ends"
