"""A subclass of ``ray.tune.Trainable`` as a function of the configuration.

The function does what Ray Tune does with such a class: it makes the object, which calls ``setup``, gives it the
checkpoint that the trial continues from, and calls ``step`` until a result holds ``done: True``. It reports each result
with what ``save_checkpoint`` gives. So a trial of a class stops, pauses, is exploited and is resumed like any other.

``cleanup`` is called when the trial ends. A trial that is stopped stands in its report. That raises SystemExit when the
process is needed for another trial, at the latest when the search ends. A process that is killed calls nothing.
"""

from __future__ import annotations

import tempfile
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray import tune
from ray.train._internal.session import _TrainingResult
from ray.tune import Checkpoint, Trainable
from ray.tune.result import (
    DONE,
    EPISODES_TOTAL,
    SHOULD_CHECKPOINT,
    TIME_TOTAL_S,
    TIMESTEPS_TOTAL,
    TRAINING_ITERATION,
    TRIAL_INFO,
)

from tuner.trainable.ray_classes import users

_COUNTED = (TRAINING_ITERATION, TIME_TOTAL_S, TIMESTEPS_TOTAL, EPISODES_TOTAL)
"""What a class counts, which Ray keeps beside its checkpoints."""


class _InTrial(Trainable):  # type: ignore[misc]
    """Comes before the user's class: Ray's own makes a folder in the home directory, and changes into it."""

    def _setup_logdir(self) -> None:
        self._logdir = tune.get_context().get_trial_dir()
        Path(self._logdir).mkdir(parents=True, exist_ok=True)


class ClassTrial:
    """``train(config)`` of a subclass of ``ray.tune.Trainable``."""

    def __init__(self, cls: type[Trainable]) -> None:
        self.cls = cls
        written = next(users(cls), cls)
        self.__name__, self.__module__, self.__doc__ = written.__name__, written.__module__, written.__doc__
        if _overrides(cls, "default_resource_request"):
            self._resources = cls.default_resource_request

    def __call__(self, config: dict[str, Any]) -> None:
        trial = self._made(config)
        try:
            if (checkpoint := tune.get_checkpoint()) is not None:
                _restore(trial, checkpoint)
            over = False
            while not over:
                result = trial.train()
                over = bool(result.get(DONE))
                _report(trial, result)
        finally:
            _stop(trial)

    def _made(self, config: dict[str, Any]) -> Trainable:
        context = tune.get_context()
        info = SimpleNamespace(
            trial_id=context.get_trial_id(),
            trial_name=context.get_trial_name(),
            trial_resources=context.get_trial_resources(),
        )
        names = {"__module__": self.__module__, "__qualname__": self.__name__}
        return type(self.__name__, (_InTrial, self.cls), names)({**config, TRIAL_INFO: info})


def _report(trial: Trainable, result: dict[str, Any]) -> None:
    """Reports what the object returned, without what Ray adds to every report, and the checkpoint that it saves."""
    added = {DONE, SHOULD_CHECKPOINT, TRAINING_ITERATION, *trial.get_auto_filled_metrics()}
    metrics = {name: value for name, value in result.items() if name not in added}
    if not _overrides(type(trial), "save_checkpoint"):
        tune.report(metrics)
        return
    with tempfile.TemporaryDirectory(prefix="tuner-checkpoint-") as folder:
        trial.save(folder)
        checkpoint = Checkpoint.from_directory(folder)
        checkpoint.set_metadata({name: result[name] for name in _COUNTED if name in result})
        tune.report(metrics, checkpoint=checkpoint)


def _restore(trial: Trainable, checkpoint: Checkpoint) -> None:
    if not _overrides(type(trial), "load_checkpoint"):
        name = type(trial).__name__
        raise TypeError(f"{name} has save_checkpoint and no load_checkpoint: the trial cannot continue; write it")
    trial.restore(_TrainingResult(checkpoint, checkpoint.get_metadata()))


def _stop(trial: Trainable) -> None:
    try:
        trial.stop()
    except Exception:  # noqa: BLE001 - the user's cleanup may raise anything: the trial has its results already
        traceback.print_exc()


def _overrides(cls: type, name: str) -> bool:
    """Whether a class below ``ray.tune.Trainable`` has its own."""
    return any(name in vars(base) for base in cls.__mro__ if base not in Trainable.__mro__)
