"""From what the user said and what the cluster has to a checked ``Plan``."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.errors import MOST_PROBLEMS, InputError, Problem
from tuner.experiment.plug_ins import tracking_class
from tuner.experiment.reader import Experiment
from tuner.experiment.repeat import REPETITION
from tuner.experiment.resources import ACCELERATOR
from tuner.experiment.space_checks import examined
from tuner.plan.cluster import Cluster, format_resources
from tuner.plan.compatibility import pairing_problems, space_problems, with_chosen_search
from tuner.plan.plan import Plan
from tuner.plan.trainable_checks import with_trainable
from tuner.spec.configuration import Configuration, merge
from tuner.spec.user_imports import text_of
from tuner.trainable.trainable import Trainable, load_trainable

SAMPLES = 200
"""Configurations drawn to check the trainable's Config and to estimate sizes."""


def make_plan(experiment: Experiment, cluster: Cluster) -> Plan:
    """Checks ``experiment`` against its trainable and ``cluster``. Raises InputError with every problem found."""
    experiment, search_reason = with_chosen_search(experiment)
    spec = experiment.spec
    problems = [experiment.problem(path, text) for path, text in space_problems(spec.search, spec.search_space)]
    problems += [experiment.problem(path, text) for path, text in pairing_problems(spec)]
    if spec.checkpoints.every > 1 and spec.scheduler.kind == "ray":
        message = "must be 1 with scheduler.kind ray: such a scheduler may pause a trial at any report"
        problems.append(experiment.problem(("checkpoints", "every"), message))
    problems += [
        experiment.problem(("params", *path[:n]), "is a value here, but a group of parameters in search_space")
        for path in {parameter.path for parameter in spec.search_space.parameters}
        for n in range(1, len(path))
        if _holds(spec.params, path[:n]) and not isinstance(_value_at(spec.params, path[:n]), dict)
    ]
    problems += [
        experiment.problem(("params", *path), f"is also in search_space ({parameter.domain}): keep one of them")
        for parameter in spec.search_space.parameters
        for path in [parameter.path]
        if _holds(spec.params, path)
    ]
    trainable: Trainable | None = None
    try:
        trainable = load_trainable(spec.trainable, experiment.roots, experiment.pickles)
    except InputError as error:
        problems += [experiment.problem(("trainable",), problem.message) for problem in error.problems]
    samples: list[Configuration] = []
    drawn = 1
    try:
        space = examined(experiment, SAMPLES)
        problems, samples, drawn = problems + space.problems, space.allowed, space.drawn
    except Exception as error:  # noqa: BLE001 - the user's own sample_from may raise anything: it is shown
        message = f"cannot be sampled: {type(error).__name__}: {text_of(error)}"
        problems.append(experiment.problem(("search_space",), message))
    problems += _tracker_problems(experiment)
    problems += _repeat_problems(experiment, trainable)
    problems += _fused_problems(experiment, trainable)
    if trainable is not None:
        problems += _registry_problems(experiment, trainable)
    if trainable is not None and not problems:
        problems += _config_problems(experiment, trainable, samples)
    notes: list[str] = []
    if trainable is not None:
        experiment, notes, unmet = with_trainable(experiment, trainable, samples, cluster.has_gpus)
        problems, spec = problems + unmet, experiment.spec
    request = spec.resources.request(has_gpus=cluster.has_gpus)
    if not cluster.most_slots(request, spec.resources.workers):
        problems.append(_unplaceable(experiment, request, cluster))
    if problems or trainable is None:
        raise InputError(problems)
    try:
        sizes = [trainable.checkpoint_bytes(merge(spec.params, config)) for config in samples[:20]]
        reducible = trainable.micro_batch(merge(spec.params, samples[0])) is not None
    except Exception as error:  # noqa: BLE001 - the user's own estimate may raise anything: it is shown
        message = f"its checkpoint_bytes failed: {type(error).__name__}: {text_of(error)}"
        raise InputError([experiment.problem(("trainable",), message)]) from None
    return Plan(
        experiment,
        trainable,
        cluster,
        request,
        trials=spec.budget.trials or min(spec.search.default_trials(spec.search_space), 2**63 - 1),
        seed=spec.search.seed if spec.search.seed is not None else random.SystemRandom().randrange(2**32),
        checkpoint_bytes=max((s for s in sizes if s is not None), default=None),
        reducible=reducible,
        acceptance=len(samples) / drawn,
        search_reason=search_reason,
        notes=tuple(notes),
    )


def _registry_problems(experiment: Experiment, trainable: Trainable) -> Iterator[Problem]:
    """Why there would be no model to register."""
    tracking, path = experiment.spec.tracking.mlflow, ("tracking", "mlflow", "register")
    if tracking is None or tracking.register_as is None:
        return
    if not trainable.can_load_model:
        missing = f"needs a function load_model(config, checkpoint) in the module of {trainable.reference}"
        yield experiment.problem(path, f"{missing}, which returns the torch.nn.Module of a checkpoint")
    if len(experiment.spec.objectives) > 1:
        yield experiment.problem(path, "needs one objective: several leave a front, and no single best model")


def _repeat_problems(experiment: Experiment, trainable: Trainable | None) -> Iterator[Problem]:
    """Why the repetitions cannot be told apart, or its scheduler cannot compare trials after each."""
    spec, repeat = experiment.spec, experiment.spec.repeat
    if repeat is None:
        return
    taken = {path[:n] for path in (p.path for p in spec.search_space.parameters) for n in range(1, len(path) + 1)}
    where = "search_space" if repeat.path in taken else "params" if _holds(spec.params, repeat.path) else None
    if where:
        yield experiment.problem(("repeat", "over"), f"{repeat.over} is also in {where}: take it out there")
    if repeat.at_once and trainable and not trainable.can_train_many:
        yield experiment.problem(("repeat", "at_once"), f"{_no_train_many(trainable)}, or leave out at_once")
    if repeat.at_once and spec.resources.workers > 1:
        message = f"is for trials of one process, and resources.workers is {spec.resources.workers}: leave out one"
        yield experiment.problem(("repeat", "at_once"), message)
    scheduler = spec.scheduler
    if scheduler.changes_configurations:
        message = f"is for trials that train once: {scheduler.kind} changes their configurations on the way"
        yield experiment.problem(("repeat",), f"{message}; use asha, or leave out repeat")
    elif scheduler.fidelity and not repeat.at_once:
        name, max_t = scheduler.fidelity
        if name not in (REPETITION, "training_iteration"):
            message = f"{name} is not known to a scheduler while a repetition runs: write {REPETITION}"
            yield experiment.problem(("scheduler", "time_attr"), message)
        if max_t != repeat.times:
            message = f"is {max_t}, and a complete trial has {repeat.times} repetitions: write max_t: {repeat.times}"
            yield experiment.problem(("scheduler", "max_t"), message)


def _fused_problems(experiment: Experiment, trainable: Trainable | None) -> Iterator[Problem]:
    """Why its trials cannot train as one model."""
    fused, path = experiment.spec.resources.fused, ("resources", "fused")
    if fused == 1:
        return
    if trainable and not trainable.can_train_many:
        yield experiment.problem(path, f"{_no_train_many(trainable)}, or leave out fused")
    if experiment.spec.repeat:
        message = "is for trials that train once: write repeat.at_once to train the repetitions of a trial as one model"
        yield experiment.problem(path, f"{message}, or leave out repeat")


def _no_train_many(trainable: Trainable) -> str:
    missing = f"needs a function train_many(configs, report, checkpoints) in the module of {trainable.reference}"
    return f"{missing}: write it"


def _tracker_problems(experiment: Experiment) -> Iterator[Problem]:
    """Why a tracker of the user's cannot be used."""
    for i, custom in enumerate(experiment.spec.tracking.custom or ()):
        try:
            tracking_class(custom, experiment.roots)
        except InputError as error:
            yield experiment.problem(("tracking", "custom", i, "class_path"), str(error))


def _config_problems(experiment: Experiment, trainable: Trainable, samples: list[dict[str, Any]]) -> list[Problem]:
    """Every parameter and its extreme values against the trainable's Config, without starting anything."""
    spec = experiment.spec
    problems: dict[tuple[str, ...], Problem] = {}
    repeat = spec.repeat
    repetition = repeat.values(0) if repeat else {}

    def candidates() -> Iterator[Configuration]:
        yield from samples[:5]
        for parameter in spec.search_space.parameters:
            active = next((config for config in samples if _holds(config, parameter.path)), None)
            for value in parameter.domain.probes() if active is not None else ():
                if parameter.path in problems:
                    break
                yield _replaced(active or {}, parameter.path, value)

    for config in candidates():
        for path, message in trainable.config_problems(merge(spec.params, merge(config, repetition))):
            if repeat and path == repeat.path:
                problems.setdefault(path, experiment.problem(("repeat", "over"), f"{repeat.over}: {message}"))
                continue
            where = (
                ("search_space",)
                if _holds(config, path[:1]) or (path and not _holds(spec.params, path))
                else ("params",)
            )
            name = ".".join(path)
            text = f"{name}: {message}" if path and not _holds(experiment.document.value, (*where, *path)) else message
            problems.setdefault(path, experiment.problem((*where, *path), text))
        if len(problems) > MOST_PROBLEMS:  # more are not told
            break
    return list(problems.values())


def _holds(values: Any, path: tuple[str, ...]) -> bool:
    for part in path:
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return bool(path)


def _value_at(values: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        values = values[part]
    return values


def _replaced(config: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    nested: Any = value
    for part in reversed(path):
        nested = {part: nested}
    return merge(config, nested)


def _unplaceable(experiment: Experiment, request: Mapping[str, float], cluster: Cluster) -> Problem:
    """Names the first resource that no node has enough of, nor one that the autoscaler may start."""
    keys = {"CPU": "cpu", "GPU": "gpu", "memory": "memory_gib"}
    types = cluster.autoscaler.types if cluster.autoscaler else ()
    best = {name: max((place.get(name, 0) for place in cluster.places), default=0) for name in request}
    short = next((name for name, amount in request.items() if best[name] < amount), None)
    workers = experiment.spec.resources.workers
    room = cluster.most_slots(request)
    only = f", and its autoscaler may start only {', '.join(map(str, types))}" if types else ""
    if short is None and room:
        each = format_resources(request)
        message = f"a trial is {workers} workers of {each} each, and there is room for {room} ({cluster})"
        return experiment.problem(("resources", "workers"), f"can never be placed: {message}; ask for fewer")
    if short is None:
        message = f"a trial needs {format_resources(request)} on one node, and no node has all of it ({cluster}){only}"
        return experiment.problem(("resources",), f"can never be placed: {message}")
    key = "accelerator" if short.startswith(ACCELERATOR) else keys.get(short, f"custom.{short}")
    there = max((node.resources.get(short, 0) for node in cluster.nodes), default=0)
    have = format_resources({short: there}) if there else f"no {short.removeprefix(ACCELERATOR)}"
    needs = format_resources({short: request[short]})
    message = f"can never be placed: a trial needs {needs} and {cluster} has {have} on any node{only}"
    remedy = "; use gpu: 0 or gpu: auto" if short == "GPU" and not types else "; ask for less, or add a node"
    return experiment.problem(("resources", *key.split(".", 1)), message + remedy)
