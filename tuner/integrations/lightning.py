"""Lightning: a trial in its `Trainer`.

from tuner.integrations.lightning import Report, resume

trainer = lightning.Trainer(max_epochs=10, callbacks=[Report()], logger=False, enable_checkpointing=False)
trainer.fit(model, data, ckpt_path=resume())
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tuner.integrations.requirements import require

require("lightning")

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from tuner.integrations import session
from tuner.training.checkpointing import rng_state, set_rng_state

FILE_NAME = "checkpoint.ckpt"
"""The file of Lightning's checkpoint in that of a trial."""


class Report(Callback):  # type: ignore[misc]
    """Reports every validation of a `Trainer` to the trial, with a checkpoint that continues to the bit.

    The metrics are those that the module logged and that hold one number, with `epoch` (finished epochs, 1 after the
    first) and `step` (optimizer steps). The checkpoint is Lightning's own, with the random states of all processes,
    which Lightning leaves out. Outside of a trial the callback does nothing.

    Example:
        >>> from tuner.integrations.lightning import Report
        >>> callbacks = [Report()]  # for Trainer(callbacks=callbacks)
    """

    def __init__(self) -> None:
        self._restored: dict[str, Any] | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = session.checkpoint_folder()
        if folder is not None:
            self._restored = torch.load(folder / _random_file(trainer), map_location="cpu", weights_only=True)
            set_rng_state(self._restored, {})

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._restored is not None:  # a resumed Trainer draws an order of the data first, which it does not use
            set_rng_state(self._restored, {})
            self._restored = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != TrainerFn.FITTING or not session.active():
            return
        metrics = {name: value for name, value in trainer.callback_metrics.items() if value.numel() == 1}
        progress = {"epoch": trainer.current_epoch + 1, "step": trainer.global_step}
        with tempfile.TemporaryDirectory(prefix="tuner-lightning-") as folder:
            trainer.save_checkpoint(Path(folder, FILE_NAME))
            torch.save(rng_state({}), Path(folder, _random_file(trainer)))
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


def _random_file(trainer: Trainer) -> str:
    return f"random_state_{trainer.global_rank}.pt"
