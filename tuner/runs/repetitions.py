"""Trials with repetitions: which of them can be the best, and what their checkpoints hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tuner.errors import InputError
from tuner.experiment.repeat import REPETITION, Repeat
from tuner.spec.configuration import Configuration, merge
from tuner.spec.outcome_constraints import OutcomeConstraint, read_outcome_constraints

DONE = "repetitions.json"
"""A list of what each repetition reported, in the checkpoint of a trial."""


def limits_of(spec: Mapping[str, Any]) -> tuple[OutcomeConstraint, ...]:
    """The outcome constraints of an experiment. With repetitions, no trial that lacks some can be the best."""
    limits = read_outcome_constraints(spec.get("outcome_constraints", []))
    repeat = spec.get("repeat")
    return (*limits, OutcomeConstraint(REPETITION, False, repeat["times"])) if repeat else limits


def first(repeat: Mapping[str, Any] | None, config: Configuration, checkpoint: Path) -> tuple[Configuration, Path]:
    """The configuration and the checkpoint of the first repetition; what is given for a run without repetitions."""
    if not repeat:
        return config, checkpoint
    return merge(config, Repeat(**repeat).values(0)), checkpoint / "0"


def over_all(
    repeat: Mapping[str, Any] | None,
    config: Configuration,
    checkpoint: Path,
    evaluate: Callable[[Configuration, Path], dict[str, float]],
) -> dict[str, float]:
    """What ``evaluate`` gives: for a run with repetitions the means over them, and the standard deviations."""
    if not repeat:
        return evaluate(config, checkpoint)
    numbers = sorted(int(folder.name) for folder in checkpoint.iterdir() if folder.name.isdigit())
    if not numbers:
        raise InputError("the repetitions reported no checkpoints: there is no model to restore")
    found = [evaluate(merge(config, Repeat(**repeat).values(k)), checkpoint / str(k)) for k in numbers]
    means = {name: fmean(one[name] for one in found) for name in found[0]}
    spread = {f"{name}_std": stdev(one[name] for one in found) for name in means} if len(found) > 1 else {}
    return means | spread
