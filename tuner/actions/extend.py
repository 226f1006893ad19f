"""What it takes to make a search longer: the overrides of its experiment, and the trials that continue."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuner.errors import InputError, did_you_mean
from tuner.runs.results import ResultSet
from tuner.spec.quantities import parse_duration

RETRY = "retry --failed"
"""The request by which all failed trials run again."""


def retried(trials: Sequence[str]) -> str:
    """The request to run these failed trials again; without any, all of them."""
    return " ".join(["retry", *(f"--trial {trial}" for trial in trials)]) if trials else RETRY


def requested(
    trials: str | int | None, max_t: str | int | None, wall_clock: str | float | None, overrides: Sequence[str]
) -> str:
    """The request to extend, as on the command line."""
    options = {"trials": trials, "max-t": max_t, "wall-clock": wall_clock}
    words = [f"--{name} {value}" for name, value in options.items() if value is not None]
    return " ".join(["extend", *words, *(f"--set {override}" for override in overrides)])


def extension(
    results: ResultSet, trials: str | int | None, max_t: str | int | None, wall_clock: str | float | None
) -> list[str]:
    """The overrides that make it so much longer; a text with ``+`` adds to what there was.

    Raises InputError if a value is not a number, or nothing becomes longer.
    """
    scheduler, budget = results.section("scheduler"), results.section("budget")
    found = []
    if trials is not None:
        found.append(f"budget.trials={_parse_limit('--trials', trials, budget.get('trials'), whole=True)}")
    if max_t is not None:
        if "max_t" not in scheduler:
            raise InputError(
                f"--max-t: scheduler {scheduler.get('kind')} has no max_t: its trials end with their function; "
                f"give more epochs by a parameter of the trainable, in a new run"
            )
        found.append(f"scheduler.max_t={_parse_limit('--max-t', max_t, scheduler['max_t'], whole=True)}")
    if wall_clock is not None:
        found.append(
            f"budget.wall_clock={_parse_limit('--wall-clock', wall_clock, budget.get('wall_clock'), whole=False)}"
        )
    return found


def _parse_limit(option: str, text: str | float, before: float | None, whole: bool) -> str:
    written = str(text).strip()
    added = written.startswith("+")
    try:
        value = (
            int(written) if whole else parse_duration(float(written) if _is_number(written) else written.lstrip("+"))
        )
    except ValueError as error:
        raise InputError(f"{option}: {text!r} is not a {'whole number' if whole else 'duration'}: {error}") from None
    if added and before is None:
        raise InputError(f"{option}: {text!r}: there was no limit to add to; give the whole of it")
    after = value + (before or 0) if added else value
    if before is not None and after <= before:
        raise InputError(f"{option}: {text!r}: it was {before:g}, and {after:g} is not longer; +{value:g} adds to it")
    return f"{after:.15g}"


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\+?\d+(\.\d+)?", text) is not None


def resumable_trials(results: ResultSet, higher: bool, other_params: bool) -> list[str]:
    """Ended trials that may continue in a longer search, from a checkpoint that is there.

    Those that the budget ended; with ``higher`` those that the scheduler ended at its old ``max_t``; with
    ``other_params`` those that the trainable ended by itself, as it may train longer with its new parameters.
    """
    return [
        trial.id
        for trial in results.trials
        if (
            trial.reason.startswith("budget.")
            or (trial.status == "completed" and (higher if trial.reason else other_params))
        )
        and any(report.checkpoint and results.folder.exists(report.checkpoint) for report in trial.reports)
    ]


def failed_trials(results: ResultSet, chosen: Sequence[str]) -> list[str]:
    """Ids of the failed trials: those that ``chosen`` names by id or number, or all without it.

    Raises InputError if none failed, or one of ``chosen`` did not.
    """
    failed = [trial for trial in results.trials if trial.status == "failed"]
    if not failed:
        raise InputError(f"{results.folder.location}: nothing to retry: no trial failed")
    names = {name for trial in failed for name in (trial.id, str(trial.number))}
    for name in chosen:
        if name not in names:
            hint = did_you_mean(name, [str(trial.number) for trial in failed])
            raise InputError(
                f"--trial {name}: {results.folder.location} has no failed trial of that id or number; {hint}"
            )
    return [trial.id for trial in failed if not chosen or {trial.id, str(trial.number)} & set(chosen)]
