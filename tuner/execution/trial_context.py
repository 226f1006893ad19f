"""A trial's call of the user's function, in a process that is as if new, with reports that can be compared.

Every report is checked here, before Ray sees it. In Ray 2.60 a report without the metric, or with None or text in its
place, kills the whole experiment. A NaN leaves Optuna's trial running for ever, and HyperOpt counts it as a success. A
function that never reports counts as completed.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.tune.result import DEFAULT_METRIC

from tuner.execution import data_wait
from tuner.execution.failure_classifier import BadReport, MissingMetric, NotFinite
from tuner.execution.metrics import flat_metrics
from tuner.execution.process_reset import ProcessState, seed_all, seed_of
from tuner.execution.repetitions import run_at_once, run_repeated
from tuner.execution.retry_policy import MICRO_BATCH
from tuner.experiment.repeat import REPETITION, Repeat
from tuner.spec.configuration import merge
from tuner.spec.objective import Objective
from tuner.storage.pickled import Pickled
from tuner.trainable.adapter import Adapter
from tuner.trainable.bound_parameters import parameters_released
from tuner.trainable.old_interfaces import understood
from tuner.trainable.trainable import Trainable, load_trainable
from tuner.training.reporting import ProcessGroupNotFormed

NO_REPORT = "ended without a report; call tuner.report(...) or ray.tune.report({...}) at least once"


@dataclass(frozen=True)
class TrialContext:
    """What all trials of a run have in common."""

    trainable: str
    roots: tuple[Path, ...]
    working_directory: Path
    params: dict[str, Any]
    required: tuple[tuple[str, str], ...]
    """Names that every report must hold, each with the key of the experiment file that asks for it."""
    seed: int
    cpu: float
    request: Mapping[str, float]
    """Resources of each of its workers, by Ray's names."""
    workers: int
    mps: bool = False
    """Whether its processes are clients of NVIDIA's Multi-Process Service."""
    fused: int = 1
    """So many trials train as one model; ``cpu`` is of all of them, ``request`` of each."""
    repeat: Repeat | None = None
    objectives: tuple[Objective, ...] = ()
    """By the first one the best report of a repetition is chosen."""
    pickles: tuple[Pickled, ...] = ()
    """The objects that ``trainable`` may name and that no name imports."""


def with_micro_batch(config: dict[str, Any]) -> dict[str, Any]:
    """A trial's configuration as its function gets it: a reduced micro-batch stands in place of its own."""
    config = dict(config)
    reduced = config.pop(MICRO_BATCH, None)
    return config if reduced is None else config | {"micro_batch": reduced}


@contextlib.contextmanager
def ready(
    process: ProcessState, task: TrialContext, config: dict[str, Any], environment: Mapping[str, str] | None = None
) -> Iterator[Trainable]:
    """Within, ``process`` is as if new, and seeded for a trial with ``config``; yields its trainable.

    ``environment`` holds variables that the user's code finds besides.
    """
    process.reset(
        task.working_directory,
        task.roots,
        seed_of(task.seed, {}),
        cpu=task.cpu,
        gpu=task.request.get("GPU", 0) * task.fused,
        may_keep=not environment,  # the modules may read it at import
    )
    os.environ.update(environment or {})
    with understood(), parameters_released():
        trainable = load_trainable(task.trainable, task.roots, task.pickles)
        process.loaded(task.roots)
        data_wait.wrap()
        # a reduced micro-batch is not part of the configuration, from which the seed comes
        seed_all(seed_of(task.seed, {name: value for name, value in config.items() if name != MICRO_BATCH}))
        yield trainable


def run_function(
    process: ProcessState,
    task: TrialContext,
    config: dict[str, Any],
    report: Callable[[dict[str, Any]], None],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Calls the user's function for a trial with ``config``, as if ``process`` were new; raises what it raises.

    ``report`` gets what it returns or yields; ``environment`` holds variables that it finds besides.
    """
    with ready(process, task, config, environment) as trainable:
        config = with_micro_batch(config)
        train = trainable.train
        if isinstance(train, Adapter):
            train = train.reporting(tuple(one for one in task.required if one[0] != REPETITION))

        def call(config: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> None:
            output = train(trainable.make_config(merge(task.params, config)))
            for value in output if inspect.isgenerator(output) else [output]:
                if value is not None:
                    report(value if isinstance(value, dict) else {DEFAULT_METRIC: value})

        if task.repeat is None:
            call(config, report)
            return
        repeat = task.repeat
        if repeat.at_once:
            configs = [merge(task.params, merge(config, repeat.values(number))) for number in range(repeat.times)]
            run_at_once(repeat, task.objectives, functools.partial(trainable.train_many, configs))
            return

        def repetition(number: int, report: Callable[[dict[str, Any]], None]) -> None:
            repeated = merge(config, repeat.values(number))
            seed_all(seed_of(task.seed, repeated))
            call(repeated, report)

        alone = task.workers == 1
        run_repeated(
            repeat,
            task.objectives,
            repetition,
            reports=alone or os.environ["RANK"] == "0",
            check=lambda: None if alone else check_formed(task.workers),
        )


def checked(task: TrialContext, number: int, metrics: dict[str, Any]) -> dict[str, Any]:
    """The ``metrics`` of a trial's report ``number``, those that the experiment compares as plain numbers.

    Raises BadReport or MissingMetric if one of these is missing or no number, and NotFinite.
    """
    named, found = flat_metrics(metrics), dict(metrics)
    for name, key in task.required:
        if name == "training_iteration":  # counted by Ray itself
            continue
        if name not in named:
            message = f"{key}: the trainable reports no {name!r}; it reports: {', '.join(sorted(named)) or 'nothing'}"
            raise MissingMetric(message) if number == 1 else BadReport(f"report {number}: {message}")
        value = named[name]
        plain = value.item() if type(value).__module__ == "numpy" and getattr(value, "ndim", 0) == 0 else value
        if isinstance(plain, bool) or not isinstance(plain, (int, float)):
            raise BadReport(f"report {number}: {name} is {plain!r}, not a number")
        if not math.isfinite(plain):
            raise NotFinite(f"report {number}: {name} is {plain}")
        if "/" not in name:
            found[name] = plain
    return found


def check_formed(workers: int) -> None:
    """Raises ProcessGroupNotFormed if the trainable that has just reported trains in this process alone."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    size = distributed.get_world_size() if distributed and distributed.is_initialized() else 1
    if size != workers:
        raise ProcessGroupNotFormed(
            f"resources.workers: {workers} processes called the trainable, and it trained in each alone: it must form "
            "one group of them (`with distributed.group() as group`, see tuner.training.distributed), or use workers: 1"
        )
