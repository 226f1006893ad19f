"""The options of optimizers over a resume: a checkpoint holds those of the time, the configuration those of today.

Population based training lets a trial continue from a checkpoint with other hyperparameters. A framework restores an
optimizer with all of its options, and so would undo that. An option that did not change is left as it was restored: a
resumed trial stays equal to an uninterrupted one to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

Options = list[dict[str, Any]]
"""Of each group of parameters its options, as learning rate and weight decay."""

_LEARNING_RATES = ("lr", "initial_lr")


def options_of(optimizers: Iterable[torch.optim.Optimizer]) -> Options:
    """The options of ``optimizers``, in the order of their groups."""
    return [
        {
            name: value
            for name, value in group.items()
            if isinstance(value, int | float | list | tuple) and name != "params"
        }
        for optimizer in optimizers
        for group in optimizer.param_groups
    ]


def reapply(
    optimizers: Iterable[torch.optim.Optimizer], schedules: Iterable[Any], before: Options, now: Options
) -> None:
    """Gives restored ``optimizers`` and their ``schedules`` the options in which ``now`` differs from ``before``.

    A learning rate is scaled: it keeps its place in its schedule. ``before`` are those that were configured when the
    checkpoint was made.
    """
    optimizers = list(optimizers)
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    if before == now or not len(groups) == len(before) == len(now):
        return
    for group, old, new in zip(groups, before, now, strict=True):
        group.update({k: v for k, v in new.items() if k not in _LEARNING_RATES and old.get(k) != v})
        if (factor := _base(new) / _base(old)) != 1.0:
            for name in _LEARNING_RATES:
                if name in group:
                    group[name] *= factor
    for schedule in schedules:
        if hasattr(schedule, "base_lrs"):
            schedule.base_lrs = [group.get("initial_lr", group["lr"]) for group in schedule.optimizer.param_groups]


def _base(options: dict[str, Any]) -> float:
    """The learning rate from which a schedule starts."""
    return float(options.get("initial_lr", options["lr"]))
