"""A trial by the name that a user gives it."""

from __future__ import annotations

from tuner.errors import InputError, did_you_mean
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial

SHOWN = 20
"""Trials that a message lists at most."""


def find_trial(results: ResultSet, name: str) -> Trial:
    """The trial whose id or number is ``name``. Raises InputError, with the nearest ones, when there is none."""
    for trial in results.trials:
        if name in (trial.id, str(trial.number)):
            return trial
    if not results.trials:
        raise InputError(f"TRIAL: {results.folder.location} has no trials")
    if name.isdigit() and len(name) < 8:  # an id has eight characters
        numbers = [trial.number for trial in results.trials]
        hint = f"its trials have the numbers {min(numbers)} to {max(numbers)}"
    else:
        near = sorted(results.trials, key=lambda trial: trial.id[: len(name)] != name)
        hint = did_you_mean(name, [trial.id for trial in near[:SHOWN]])
        if len(near) > SHOWN:
            hint += f", and {len(near) - SHOWN} more"
    raise InputError(f"TRIAL: {results.folder.location} has no trial {name!r}; {hint}")
