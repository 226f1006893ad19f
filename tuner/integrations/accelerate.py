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

import contextlib
import json
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.integrations.requirements import require

require("accelerate")

import torch
from accelerate import Accelerator

from tuner.integrations import session
from tuner.integrations.hyperparameters import Options, options_of, reapply

_PROGRESS = "progress.json"
"""The epoch, beside what `Accelerator.save_state` writes."""


def report(accelerator: Accelerator, metrics: Mapping[str, Any]) -> None:
    """Reports an evaluation, with a checkpoint from which the training continues to the bit.

    The checkpoint is that of `Accelerator.save_state`: models, optimizers, schedules, scaler, samplers, and the random
    states of all processes. `step` is added: the steps of the first optimizer since `resume`, and those before the
    checkpoint. Outside of a trial the function does nothing.

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
    with tempfile.TemporaryDirectory(prefix="tuner-accelerate-") as folder, _into_one_folder(accelerator):
        accelerator.save_state(folder)
        steps = _steps(accelerator).count
        Path(folder, _PROGRESS).write_text(
            json.dumps({"epoch": int(metrics["epoch"]), "step": steps, "options": _configured(accelerator)})
        )
        torch.save([_order(loader) for loader in accelerator._dataloaders], Path(folder, _orders_file(accelerator)))
        session.report({"step": steps, **metrics}, Path(folder))


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
    configured, steps = _configured(accelerator), _steps(accelerator)
    folder = session.checkpoint_folder()
    if folder is None:
        return 0
    with _into_one_folder(accelerator):
        accelerator.load_state(str(folder))
    orders = torch.load(folder / _orders_file(accelerator), weights_only=True)
    for loader, order in zip(accelerator._dataloaders, orders, strict=True):
        loader.iteration = order["iteration"]
        if order["generator"] is not None:
            loader.synchronized_generator.set_state(order["generator"])
    progress = json.loads((folder / _PROGRESS).read_text())
    steps.count = progress["step"]
    schedules = [getattr(one, "scheduler", one) for one in (*accelerator._schedulers, *accelerator._custom_objects)]
    reapply(accelerator._optimizers, schedules, progress["options"], configured)
    return int(progress["epoch"])


def _configured(accelerator: Accelerator) -> Options:
    """The options of the optimizers as they were when `resume` was called first."""
    if accelerator not in _CONFIGURED:
        _CONFIGURED[accelerator] = json.loads(json.dumps(options_of(accelerator._optimizers)))
    return _CONFIGURED[accelerator]


class _Steps:
    """Counts the steps of an optimizer; those that a scaler skips are none."""

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self.count = 0
        for wrapped in optimizers[:1]:
            getattr(wrapped, "optimizer", wrapped).register_step_post_hook(self._add)

    def _add(self, *_: Any) -> None:
        self.count += 1


def _steps(accelerator: Accelerator) -> _Steps:
    """Those of the first optimizer since this was called first."""
    if accelerator not in _COUNTED:
        _COUNTED[accelerator] = _Steps(accelerator._optimizers)
    return _COUNTED[accelerator]


_COUNTED: weakref.WeakKeyDictionary[Accelerator, _Steps] = weakref.WeakKeyDictionary()
_CONFIGURED: weakref.WeakKeyDictionary[Accelerator, Options] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def _into_one_folder(accelerator: Accelerator) -> Iterator[None]:
    """Within, `save_state` and `load_state` take the folder that they are given, and none that they count."""
    project = accelerator.project_configuration
    before, project.automatic_checkpoint_naming = project.automatic_checkpoint_naming, False
    try:
        yield
    finally:
        project.automatic_checkpoint_naming = before


def _order(loader: Any) -> dict[str, Any]:
    """The state of the order of a data loader; no generator if it draws from torch's own."""
    generator = getattr(loader, "synchronized_generator", None)
    return {"iteration": loader.iteration, "generator": None if generator is None else generator.get_state()}


def _orders_file(accelerator: Accelerator) -> str:
    """The random states of the data loaders of this process; `Accelerator.save_state` leaves most of them out."""
    return f"orders_{accelerator.process_index}.pt"
