"""A plan against the kind of its trainable: the resources that it asks for, and where its trials end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from tuner.errors import Problem
from tuner.experiment.reader import Experiment
from tuner.experiment.resources import Resources
from tuner.spec.configuration import Configuration, merge
from tuner.spec.user_imports import text_of, user_code
from tuner.trainable.kinds import class_of
from tuner.trainable.ray_classes import may_end_itself
from tuner.trainable.requested_resources import requested
from tuner.trainable.trainable import Trainable

_MOST_ASKED = 20
"""Configurations for which the trainable's request is asked."""

_TO_THE_END = "scheduler: {kind: asha, time_attr: training_iteration, max_t: N, grace_period: N}"
"""Every trial runs for N steps."""


def with_trainable(
    experiment: Experiment, trainable: Trainable, samples: list[Configuration], has_gpus: bool
) -> tuple[Experiment, list[str], list[Problem]]:
    """``experiment`` with the resources that the trainable asks for; what the user must know, and problems.

    ``has_gpus``: what ``gpu: auto`` means.
    """
    experiment, notes, problems = _with_requested(experiment, trainable, samples)
    other_notes, other_problems = _class_checks(experiment, trainable, has_gpus)
    return experiment, notes + other_notes, problems + other_problems


def _with_requested(
    experiment: Experiment, trainable: Trainable, samples: list[Configuration]
) -> tuple[Experiment, list[str], list[Problem]]:
    """``experiment`` with what the trainable asks for where it does not say itself; notes and problems with that."""
    resources = experiment.spec.resources
    said = {name: getattr(resources, name) for name in resources.model_fields_set}
    configs = [merge(experiment.spec.params, config) for config in samples[:_MOST_ASKED]]
    try:
        with user_code(trainable.roots):
            asked = requested(trainable.train, configs)
        if asked is None:
            return experiment, [], []
        resources = Resources(**{**asked, **said})
    except ValidationError as error:
        why = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
    except Exception as error:  # noqa: BLE001 - the user's own request may raise anything: it is shown
        why = text_of(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {text_of(error)}"
    else:
        notes = [
            f"resources.{name} is {_shown(said[name])}, as in the experiment; the trainable asks for {_shown(value)}"
            for name, value in asked.items()
            if name in said and said[name] != value
        ]
        return replace(experiment, spec=experiment.spec.model_copy(update={"resources": resources})), notes, []
    if {"cpu", "gpu"} <= said.keys():
        return experiment, [f"the resources that the trainable asks for do not count: {why}"], []
    message = f"the resources that the trainable asks for cannot be given: {why}; write cpu and gpu into resources"
    return experiment, [], [experiment.problem(("resources",), message)]


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _class_checks(experiment: Experiment, trainable: Trainable, has_gpus: bool) -> tuple[list[str], list[Problem]]:
    """A class's own checks: a note of what ends its trials, or a problem if nothing can end them."""
    cls, spec = class_of(trainable.train), experiment.spec
    problems: list[Problem] = []
    if cls is None:
        return [], problems
    name, kind = trainable.reference.rpartition(":")[2], spec.scheduler.kind
    if spec.resources.workers > 1:
        message = f"must be 1: {name} is a class, and the workers of a trial run one function def train(config) each"
        problems.append(experiment.problem(("resources", "workers"), message))
    if kind == "ray" or spec.scheduler.fidelity is not None:
        return [], problems
    if may_end_itself(cls):
        return [f"a trial ends where step() returns done: True; scheduler {kind} ends none"], problems
    end_no_trial = {"trials", "patience"}
    if "GPU" not in spec.resources.request(has_gpus):
        end_no_trial |= {"gpu_hours", "cost"}
    if spec.budget.model_dump(exclude_none=True, exclude=end_no_trial):
        nothing = f"nothing in {name} returns done: True, and scheduler {kind} ends no trial"
        return [f"{nothing}: the budget ends all of them"], problems
    message = f"{name}.step() returns no done: True, and scheduler {kind} ends no trial: it would run for ever"
    problems.append(experiment.problem(("scheduler",), f"{message}; write {_TO_THE_END}, or a limit into budget"))
    return [], problems
