"""From what the user said and what the cluster has to what will happen: a checked ``Plan``."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tuner.algorithms import pairing_problems
from tuner.configuration import merge
from tuner.errors import InputError, Problem
from tuner.machine import Cluster, Node, describe
from tuner.spec.experiment import ExperimentSpec
from tuner.spec.objective import comparison
from tuner.spec.quantities import size
from tuner.spec.reader import Experiment
from tuner.spec.resources import ACCELERATOR
from tuner.spec.space import Space
from tuner.spec.space_checks import space_problems
from tuner.spec.task import Task
from tuner.spec.values import show
from tuner.trainable import Trainable, load_trainable

WHERE = {"pack": "as few", "spread": "as many"}

SAMPLES = 200
"""Configurations drawn to check the trainable's Config and to estimate sizes."""


@dataclass(frozen=True)
class Plan:
    """All that a run needs, checked: nothing in it can be refused later."""

    experiment: Experiment
    trainable: Trainable
    cluster: Cluster
    request: Mapping[str, float]
    """Resources of one worker of a trial, by Ray's names."""
    trials: int
    seed: int
    checkpoint_bytes: int | None
    """The largest checkpoint that the trainable expects; None where it does not say."""

    @property
    def spec(self) -> ExperimentSpec:
        return self.experiment.spec

    @property
    def slots(self) -> int:
        """Trials that run at once, where there is an autoscaler with all the nodes that it may start."""
        return self._limited(self.cluster.most_slots(self.request, self.spec.resources.workers))

    def slots_on(self, nodes: tuple[Node, ...]) -> int:
        """Trials to run at once, or to wait for what the autoscaler starts, while the cluster has these ``nodes``."""
        cluster = replace(self.cluster, nodes=nodes)
        return self._limited(cluster.slots_ahead(self.request, self.spec.resources.workers))

    def _limited(self, slots: int) -> int:
        return min(self.spec.resources.max_concurrent_trials or self.trials, self.trials, slots)

    @property
    def waits_for(self) -> str:
        """The node types of the autoscaler without which no trial can start, in words; empty where one can."""
        if self.cluster.autoscaler is None or self.cluster.slots(self.request, self.spec.resources.workers):
            return ""
        return " or ".join(map(str, self.cluster.autoscaler.useful(self.request)))

    @property
    def checkpoints(self) -> int:
        """Upper bound on the checkpoints on disk at any time.

        A running trial holds its best ones, its latest two and the one being written; one that its scheduler paused
        its best ones, its latest two, or one of them and another trial's; an ended one its best ones and its latest.
        With several objectives all trials may be on the front, which keeps its checkpoints.
        """
        keep = self.spec.checkpoints
        running = self.slots * (keep.keep_per_trial + 3)
        if self.spec.scheduler.pauses:
            others = (self.trials - self.slots) * (keep.keep_per_trial + 2)
        else:
            kept = self.trials if len(self.spec.objectives) > 1 else min(keep.keep_trials, self.trials)
            others = kept * (keep.keep_per_trial + 1)
        return running + others + 1  # and best/

    @property
    def task(self) -> Task:
        fidelity = self.spec.scheduler.fidelity
        max_t = fidelity[1] if fidelity else None
        modes = tuple(objective.mode for objective in self.spec.objectives)
        return Task(self.spec.search_space, modes, self.trials, max_t, self.seed)

    @property
    def required_metrics(self) -> tuple[tuple[str, str], ...]:
        """What every report must hold, each with the key of the experiment file that asks for it."""
        return self.spec.required_metrics

    def describe(self) -> list[tuple[str, str]]:
        """The plan as (heading, text) lines."""
        spec = self.spec
        lines = [("experiment", spec.name), ("trainable", spec.trainable)]
        count = spec.search_space.size
        combinations = "infinitely many configurations" if count == math.inf else _counted(count, "configuration")
        lines.append(("search space", f"{_counted(len(spec.search_space.parameters), 'parameter')}, {combinations}"))
        lines += [("", line) for line in _space_lines(spec.search_space)]
        lines.append(("objective", ", ".join(map(str, spec.objectives))))
        if len(spec.objectives) > 1:
            lines.append(("", f"schedulers compare {comparison(spec.objectives)}"))
        lines.append(("search", f"{_options(spec.search)}, seed {self.seed}"))
        lines.append(("scheduler", _options(spec.scheduler)))
        lines.append(("trials", f"{self.trials}" + (f", {self._note_on_trials()}" if self._note_on_trials() else "")))
        lines += list(self._rung_lines())
        words = list(spec.budget.limits(holds_gpus=bool(self.request.get("GPU"))))
        unlimited = "ends early", "no: the budget has no limit but the number of trials"
        lines.append(("ends early at", ", ".join(words)) if words else unlimited)
        lines.append(("failures", self._failures()))
        lines.append(("a trial takes", self._takes()))
        lines.append(("at once", f"{_counted(self.slots, 'trial')} on {self.cluster}"))
        if self.cluster.autoscaler:
            lines.append(("", f"{self.cluster.autoscaler}; until they are there as many as fit"))
        lines.append(("checkpoints", self._disk()))
        return lines

    def as_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        count = self.spec.search_space.size
        rungs = self.spec.scheduler.rungs()
        reach = self.spec.scheduler.expected_at_rungs(self.trials)
        return {
            "experiment": self.spec.name,
            "configurations": None if count == math.inf else count,
            "trials": self.trials,
            "seed": self.seed,
            "rungs": [{"at": rung, "expected_trials": n} for rung, n in zip(rungs, reach, strict=True)],
            "trial_resources": dict(self.request),
            "slots": self.slots,
            "checkpoints": self.checkpoints,
            "checkpoint_bytes": self.checkpoint_bytes,
        }

    def _note_on_trials(self) -> str:
        count = self.spec.search_space.size
        if count >= self.trials:
            return ""
        repeats = self.spec.search.default_trials(self.spec.search_space) != count
        what = "some run twice" if repeats else "the search ends after them"
        there = f"{_counted(count, 'configuration')} there {'is' if count == 1 else 'are'}"
        return f"more than the {there}: {what}"

    def _rung_lines(self) -> Iterator[tuple[str, str]]:
        rungs, name = self.spec.scheduler.rungs(), (self.spec.scheduler.fidelity or ("", 0))[0]
        if not rungs:
            return
        reach = self.spec.scheduler.expected_at_rungs(self.trials)
        for k, (rung, count) in enumerate(zip(rungs, reach, strict=True)):
            reach_it = f"{_counted(round(count), 'trial')} reach{'es' * (round(count) == 1)} it"
            yield ("rungs" if k == 0 else "", f"{name} {rung:>4}: about {reach_it}")
        if self.spec.scheduler.first_rung_moves:
            yield "", "as if the first rung stayed where it begins; any of these may become it, as early ranks deserve"
        total = self.trials * rungs[-1]
        spent = sum(count * (rung - before) for rung, before, count in zip(rungs, (0, *rungs), reach, strict=False))
        yield "", f"about {spent:.0f} of {total} {name}s in all: {1 - spent / total:.0%} saved by stopping early"

    def _takes(self) -> str:
        workers, strategy = self.spec.resources.workers, self.spec.resources.strategy
        one = describe(self.request)
        return one if workers == 1 else f"{workers} workers on {WHERE[strategy]} nodes as can be, each {one}"

    def _failures(self) -> str:
        import numpy as np

        sample = self.spec.search_space.sample(np.random.default_rng(self.seed))
        reducible = self.trainable.micro_batch(merge(self.spec.params, sample)) is not None
        return self.spec.failures.described(reducible)

    def _disk(self) -> str:
        keep = self.spec.checkpoints
        options = [f"keep_per_trial {keep.keep_per_trial}", f"keep_trials {keep.keep_trials}"]
        options += [f"every {keep.every}"] * (keep.every > 1) + [f"max_gib {keep.max_gib or 0:g}"] * bool(keep.max_gib)
        most = f"at most {self.checkpoints} on disk ({', '.join(options)})"
        if self.checkpoint_bytes is None:
            return f"{most}; their size is known at the first report (the trainable has no checkpoint_bytes)"
        return f"{most}, up to {size(self.checkpoint_bytes)} each: {size(self.checkpoints * self.checkpoint_bytes)}"


def make_plan(experiment: Experiment, cluster: Cluster) -> Plan:
    """Checks ``experiment`` against its trainable and ``cluster``. Raises InputError with every problem found."""
    spec = experiment.spec
    problems = [
        experiment.problem(("search_space", *path), text) for path, text in spec.search.complaints(spec.search_space)
    ]
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
        trainable = load_trainable(spec.trainable, experiment.roots)
    except InputError as error:
        problems += [experiment.problem(("trainable",), problem.message) for problem in error.problems]
    samples: list[dict[str, Any]] = []
    try:
        unmet = list(space_problems(experiment))
        problems += unmet
        samples = [] if unmet else _samples(spec.search_space)
    except Exception as error:  # noqa: BLE001 - the user's own sample_from may raise anything: it is shown
        problems.append(experiment.problem(("search_space",), f"cannot be sampled: {type(error).__name__}: {error}"))
    if trainable is not None:
        problems += _registry_problems(experiment, trainable)
    if trainable is not None and not problems:
        problems += _config_problems(experiment, trainable, samples)
    request = spec.resources.request(has_gpus=cluster.has_gpus)
    if not cluster.most_slots(request, spec.resources.workers):
        problems.append(_unplaceable(experiment, request, cluster))
    if problems or trainable is None:
        raise InputError(problems)
    try:
        sizes = [trainable.checkpoint_bytes(merge(spec.params, config)) for config in samples[:20]]
    except Exception as error:  # noqa: BLE001 - the user's own estimate may raise anything: it is shown
        message = f"its checkpoint_bytes failed: {type(error).__name__}: {error}"
        raise InputError([experiment.problem(("trainable",), message)]) from None
    return Plan(
        experiment,
        trainable,
        cluster,
        request,
        trials=spec.budget.trials or spec.search.default_trials(spec.search_space),
        seed=spec.search.seed if spec.search.seed is not None else random.SystemRandom().randrange(2**32),
        checkpoint_bytes=max((s for s in sizes if s is not None), default=None),
    )


def _samples(space: Space) -> list[dict[str, Any]]:
    import numpy as np

    generator = np.random.default_rng(0)
    return [space.sample(generator) for _ in range(SAMPLES)]


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


def _config_problems(experiment: Experiment, trainable: Trainable, samples: list[dict[str, Any]]) -> list[Problem]:
    """Every parameter and its extreme values against the trainable's Config, without starting anything."""
    spec = experiment.spec
    candidates = list(samples[:5])
    for parameter in spec.search_space.parameters:
        active = next((config for config in samples if _holds(config, parameter.path)), None)
        if active is not None:
            candidates += [_replaced(active, parameter.path, value) for value in parameter.domain.probes()]
    problems: dict[tuple[str, ...], Problem] = {}
    for config in candidates:
        for path, message in trainable.complaints(merge(spec.params, config)):
            where = (
                ("search_space",)
                if _holds(config, path[:1]) or (path and not _holds(spec.params, path))
                else ("params",)
            )
            name = ".".join(path)
            text = f"{name}: {message}" if path and not _holds(experiment.document.value, (*where, *path)) else message
            problems.setdefault(path, experiment.problem((*where, *path), text))
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
        message = f"a trial is {workers} workers of {describe(request)} each, and there is room for {room} ({cluster})"
        return experiment.problem(("resources", "workers"), f"can never be placed: {message}; ask for fewer")
    if short is None:
        message = f"a trial needs {describe(request)} on one node, and no node has all of it ({cluster}){only}"
        return experiment.problem(("resources",), f"can never be placed: {message}")
    key = "accelerator" if short.startswith(ACCELERATOR) else keys.get(short, f"custom.{short}")
    there = max((node.resources.get(short, 0) for node in cluster.nodes), default=0)
    have = describe({short: there}) if there else f"no {short.removeprefix(ACCELERATOR)}"
    needs = describe({short: request[short]})
    message = f"can never be placed: a trial needs {needs} and {cluster} has {have} on any node{only}"
    remedy = "; use gpu: 0 or gpu: auto" if short == "GPU" and not types else "; ask for less, or add a node"
    return experiment.problem(("resources", *key.split(".", 1)), message + remedy)


def _counted(count: float, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _options(spec: Any) -> str:
    values = spec.model_dump(exclude={"kind", "seed", "points_to_evaluate"})
    points = len(getattr(spec, "points_to_evaluate", ()))
    first = [f"{points} point{'s' * (points != 1)} to evaluate first"] if points else []
    given = [
        f"{name} {value if isinstance(value, str) else f'{value:.4g}' if isinstance(value, float) else show(value)}"
        for name, value in values.items()
        if value not in (None, {})
    ]
    return ", ".join([spec.kind, *given, *first])


def _space_lines(space: Space) -> Iterator[str]:
    for parameter in space.parameters:
        belief = f", {parameter.prior}" if parameter.prior else ""
        yield f"{parameter.name}: {parameter.domain}{belief}{parameter.condition()}"
    for constraint in space.constraints:
        yield f"only where {constraint}"
