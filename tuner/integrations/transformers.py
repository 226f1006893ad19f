"""Transformers, TRL and PEFT: a trial in a `Trainer`.

    from tuner.integrations.transformers import Report, resume

    trainer = Trainer(model, arguments, train_dataset=..., eval_dataset=..., callbacks=[Report()])
    trainer.train(resume_from_checkpoint=resume())

TRL's trainers are subclasses of `Trainer` and take the same callback. A PEFT model is saved as its adapter.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from tuner.integrations.requirements import require

require("transformers")

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, IntervalStrategy, SaveStrategy

from tuner.integrations import session
from tuner.integrations.hyperparameters import Options, options_of, reapply
from tuner.training.accumulation import accumulation


class Report(TrainerCallback):  # type: ignore[misc]
    """Reports every evaluation of a `Trainer` to the trial, with a checkpoint that continues to the bit.

    The metrics are the Trainer's own (`eval_loss`, …), with `epoch` and `step` (optimizer steps). The Trainer saves
    after each evaluation: model or adapter, optimizer, schedule, scaler, and the random states of all processes. During
    a trial it saves in a temporary folder, and then only, so that trials that run at the same time do not share
    ``output_dir``. `EarlyStoppingCallback` counts its patience anew after a resume, unless the arguments say
    `restore_callback_states_from_checkpoint=True`. Outside of a trial the callback does nothing.

    Example:
        >>> from tuner.integrations.transformers import Report
        >>> callbacks = [Report()]  # for Trainer(..., callbacks=callbacks)
    """

    def __init__(self) -> None:
        self._folder: str | None = None
        self._metrics: dict[str, Any] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not session.active():
            return
        _check(args)
        checkpoint = session.checkpoint_folder()
        if checkpoint is not None:
            before = json.loads((checkpoint / _OPTIONS).read_text())
            _reapply(args, before, kwargs["optimizer"], kwargs["lr_scheduler"])
        self._folder = tempfile.mkdtemp(prefix="tuner-transformers-")
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._before = {name: getattr(args, name) for name in _CHANGED}
        args.output_dir = self._folder
        args.save_total_limit = 1  # the trial has copies of all
        args.save_only_model = False
        args.save_strategy = SaveStrategy.NO  # on_evaluate asks for each

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._metrics = {}  # of an evaluation before the first step

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if self._folder is not None:
            self._metrics |= metrics or {}  # one call for each data set of several
            control.should_save = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._folder is None or not self._metrics:
            return
        metrics, self._metrics = self._metrics, {}
        folder = Path(self._folder, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        (folder / _OPTIONS).write_text(json.dumps({name: getattr(args, name) for name in _OPTIMIZER}))
        session.report({**metrics, "epoch": state.epoch, "step": state.global_step}, folder)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._folder is not None:
            for name, value in self._before.items():
                setattr(args, name, value)
            self._remove()
            self._folder = None


_CHANGED = ("output_dir", "save_total_limit", "save_only_model", "save_strategy")
"""Arguments that have another value during a trial."""

_OPTIONS = "options.json"
"""The arguments of the optimizer, in the checkpoint."""

_OPTIMIZER = ("learning_rate", "weight_decay")


def _check(args: TrainingArguments) -> None:
    """Raises ValueError if a trial cannot be trained with these arguments."""
    if args.eval_strategy == IntervalStrategy.NO:
        raise ValueError(
            "tuner.integrations.transformers.Report reports evaluations, and eval_strategy is 'no': "
            "set TrainingArguments(eval_strategy='epoch'), and give the Trainer an eval_dataset"
        )
    if args.load_best_model_at_end:
        raise ValueError(
            "load_best_model_at_end: a trial continues from its last checkpoint, which does not hold the best model; "
            "leave it out: the search keeps the best checkpoint of each trial"
        )


def _reapply(args: TrainingArguments, before: dict[str, float], optimizer: Any, schedule: Any) -> None:
    """Gives the restored optimizer the arguments that differ from those ``before``."""
    old: Options = []
    for group in options_of([optimizer]):
        decay = before["weight_decay"] if group["weight_decay"] else 0.0
        old.append({"lr": before["learning_rate"], "weight_decay": decay})
    now = [
        {"lr": args.learning_rate, "weight_decay": args.weight_decay if group["weight_decay"] else 0.0} for group in old
    ]
    reapply([optimizer], [schedule], old, now)


def resume() -> str | None:
    """The checkpoint for `Trainer.train(resume_from_checkpoint=...)`. Call it after the Trainer is made.

    Returns:
        A folder, if the trial continues from a checkpoint; None if it begins, and outside of a trial.

    Example:
        >>> from tuner.integrations.transformers import resume
        >>> resume() is None
        True
    """
    folder = session.checkpoint_folder()
    return None if folder is None else str(folder)


def batch_arguments(batch_size: int, micro_batch: int | None = None, processes: int | None = None) -> dict[str, int]:
    """The arguments of `TrainingArguments` that train with ``batch_size``, by parts of at most ``micro_batch``.

    With a parameter `micro_batch` in the configuration, `failures: {on_oom: reduce_batch}` can retry a trial that ran
    out of memory: the steps of the optimizer stay the same.

    Args:
        batch_size: Examples a step of the optimizer, over all processes.
        micro_batch: Examples in memory at once in a process; None for no limit.
        processes: How many processes train the model; None for the `workers` of the trial, as `WORLD_SIZE` tells.

    Returns:
        `per_device_train_batch_size` and `gradient_accumulation_steps`.

    Raises:
        ValueError: If a number is below 1, or ``batch_size`` is not a multiple of ``processes``.

    Example:
        >>> from tuner.integrations.transformers import batch_arguments
        >>> batch_arguments(64, micro_batch=20)
        {'per_device_train_batch_size': 16, 'gradient_accumulation_steps': 4}
    """
    parts = accumulation(batch_size, micro_batch, processes or int(os.environ.get("WORLD_SIZE", "1")))
    return {"per_device_train_batch_size": parts.micro_batch, "gradient_accumulation_steps": parts.steps}
