"""Accelerate: a trial in a loop of your own.

    from tuner.integrations.accelerate import report, resume

    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(resume(accelerator) + 1, epochs + 1):
        ...
        report(accelerator, {"epoch": epoch, "val_accuracy": accuracy})

Every process calls both functions. A schedule that `prepare` did not get, or other objects with a state, belong to
`accelerator.register_for_checkpointing`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.integrations.requirements import require

require("accelerate")

import torch
from accelerate import Accelerator

from tuner.integrations import session

_PROGRESS = "progress.json"
"""The epoch, beside what `Accelerator.save_state` writes."""


def report(accelerator: Accelerator, metrics: Mapping[str, Any]) -> None:
    """Reports an evaluation, with a checkpoint from which the training continues to the bit.

    The checkpoint is that of `Accelerator.save_state`: models, optimizers, schedules, scaler, samplers, and the random
    states of all processes. Outside of a trial the function does nothing.

    Args:
        accelerator: The one that prepared model, optimizer and data.
        metrics: Numbers by name, with `epoch`: how many epochs are finished, 1 after the first. Ray gets those of the
            first process: bring them together before, as with `accelerator.gather_for_metrics`.

    Raises:
        ValueError: If ``metrics`` have no `epoch`.

    Example:
        >>> from accelerate import Accelerator
        >>> from tuner.integrations.accelerate import report
        >>> report(Accelerator(cpu=True), {"epoch": 1, "val_accuracy": 0.5})
    """
    if "epoch" not in metrics:
        raise ValueError(f"report: the metrics need 'epoch', the number of finished epochs; got {sorted(metrics)}")
    if not session.active():
        return
    with tempfile.TemporaryDirectory(prefix="tuner-accelerate-") as folder:
        accelerator.save_state(folder)
        generators = [generator and generator.get_state() for generator in _generators(accelerator)]
        torch.save(generators, Path(folder, _orders_file(accelerator)))
        Path(folder, _PROGRESS).write_text(json.dumps({"epoch": int(metrics["epoch"])}))
        session.report(metrics, Path(folder))


def resume(accelerator: Accelerator) -> int:
    """Puts everything back that the checkpoint of the trial holds. Call it after `Accelerator.prepare`.

    Args:
        accelerator: The one that prepared model, optimizer and data.

    Returns:
        The number of finished epochs; 0 if the trial begins, and outside of a trial.

    Example:
        >>> from accelerate import Accelerator
        >>> from tuner.integrations.accelerate import resume
        >>> resume(Accelerator(cpu=True))
        0
    """
    folder = session.checkpoint_folder()
    if folder is None:
        return 0
    accelerator.load_state(str(folder))
    states = torch.load(folder / _orders_file(accelerator), weights_only=True)
    for generator, state in zip(_generators(accelerator), states, strict=True):
        if generator is not None:
            generator.set_state(state)
    return int(json.loads((folder / _PROGRESS).read_text())["epoch"])


def _generators(accelerator: Accelerator) -> list[torch.Generator | None]:
    """The generators of the prepared data loaders; None for one that draws from torch's own."""
    return [getattr(loader, "synchronized_generator", None) for loader in accelerator._dataloaders]


def _orders_file(accelerator: Accelerator) -> str:
    """The random states of the data loaders of this process; `Accelerator.save_state` leaves most of them out."""
    return f"orders_{accelerator.process_index}.pt"
