"""Lightning: a trial in its `Trainer`.

from tuner.integrations.lightning import Report, resume

trainer = lightning.Trainer(max_epochs=10, callbacks=[Report()], logger=False)
trainer.fit(model, data, ckpt_path=resume())
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tuner.integrations.requirements import require

require("lightning")

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.trainer.states import TrainerFn

from tuner.integrations import session
from tuner.integrations.hyperparameters import Options, options_of, reapply
from tuner.training.checkpointing import rng_state, set_rng_state

FILE_NAME = "checkpoint.ckpt"
"""The file of Lightning's checkpoint in that of a trial."""


class Report(Checkpoint):  # type: ignore[misc]
    """Reports every validation of a `Trainer` to the trial, with a checkpoint that continues to the bit.

    The metrics are those that the module logged and that hold one number, with `epoch` (finished epochs, 1 after the
    first) and `step` (optimizer steps). The checkpoint is Lightning's own, with the random states of all processes,
    which Lightning leaves out. Lightning counts the callback as a checkpoint: it runs after the other callbacks, and
    takes the place of the default `ModelCheckpoint`. Outside of a trial the callback does nothing.

    Example:
        >>> from tuner.integrations.lightning import Report
        >>> callbacks = [Report()]  # for Trainer(callbacks=callbacks)
    """

    def __init__(self) -> None:
        self._is_due = False
        self._configured: Options = []
        self._restored: Options | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._configured = options_of(trainer.optimizers)  # Lightning restores them after this
        folder = session.checkpoint_folder()
        if folder is not None:
            state = torch.load(folder / _state_file(trainer), map_location="cpu", weights_only=True)
            set_rng_state(state["random"], {})
            self._restored = state["options"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._restored is not None:
            schedules = [config.scheduler for config in trainer.lr_scheduler_configs]
            reapply(trainer.optimizers, schedules, self._restored, self._configured)
            self._restored = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != TrainerFn.FITTING or not session.active():
            return
        self._is_due = True
        if not trainer.is_last_batch:
            self._report(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._is_due:
            self._report(trainer)

    def _report(self, trainer: Trainer) -> None:
        self._is_due = False
        metrics = {name: value for name, value in trainer.callback_metrics.items() if value.numel() == 1}
        progress = {"epoch": trainer.current_epoch + 1, "step": trainer.global_step}
        with tempfile.TemporaryDirectory(prefix="tuner-lightning-") as folder:
            trainer.save_checkpoint(Path(folder, FILE_NAME))
            state = {"random": rng_state({}), "options": self._configured}
            torch.save(state, Path(folder, _state_file(trainer)))
            session.report({**metrics, **progress}, Path(folder))


def resume() -> str | None:
    """The checkpoint for `Trainer.fit(ckpt_path=...)`.

    Returns:
        A file, if the trial continues from a checkpoint; None if it begins, and outside of a trial.

    Example:
        >>> from tuner.integrations.lightning import resume
        >>> resume() is None
        True
    """
    folder = session.checkpoint_folder()
    return None if folder is None else str(folder / FILE_NAME)


def device_arguments() -> dict[str, int]:
    """The arguments of `Trainer` for the processes that the trial has started (`resources: {workers: N}`).

    Returns:
        `devices` (processes on this node) and `num_nodes`, as the variables of `torchrun` tell; none without them.

    Example:
        >>> from tuner.integrations.lightning import device_arguments
        >>> device_arguments()  # for Trainer(**device_arguments())
        {}
    """
    if "WORLD_SIZE" not in os.environ:
        return {}
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    return {"devices": here, "num_nodes": int(os.environ["WORLD_SIZE"]) // here}


def _state_file(trainer: Trainer) -> str:
    return f"process_state_{trainer.global_rank}.pt"
