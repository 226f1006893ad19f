"""The trial around an integration: whether there is one, where it continues from, and a report to it.

A framework may train one model in several processes (`resources: {workers: N}`). Ray knows the first of them only. The
functions here ask that one, and give its answer to the others, so that every process must call them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tuner.trainable.reporting import in_trial, local_folder, to_number

if TYPE_CHECKING:
    from ray import tune

T = TypeVar("T")


def active() -> bool:
    """Whether this process trains for a trial of Ray Tune, under tuner or not."""
    return _from_first(in_trial)


def checkpoint_folder() -> Path | None:
    """The folder of the checkpoint that the trial continues from, on this node; None if it begins, or there is none."""
    checkpoint = _from_first(_checkpoint)
    return None if checkpoint is None else local_folder(checkpoint)


def report(metrics: Mapping[str, Any], folder: Path | None) -> None:
    """Reports an evaluation, with the files in ``folder`` as its checkpoint; only the first process does.

    Files of the other processes that the first one lacks, such as their random states, come into its ``folder``.
    """
    if folder is not None:
        _complete(folder)
    if in_trial():
        from ray import tune

        numbers = {name: to_number(value) for name, value in metrics.items()}
        tune.report(numbers, checkpoint=None if folder is None else tune.Checkpoint.from_directory(folder))


def _checkpoint() -> tune.Checkpoint | None:
    if not in_trial():
        return None
    from ray import tune

    return tune.get_checkpoint()


def _from_first(make: Callable[[], T]) -> T:
    if not _has_torch_group():
        return make()
    from tuner.training.distributed import joined

    return joined().from_first(make)


def _complete(folder: Path) -> None:
    if not _has_torch_group():
        return
    from tuner.training.distributed import joined

    group = joined()
    names = group.from_first(lambda: _files(folder))
    lacking = {name: (folder / name).read_bytes() for name in _files(folder) - names}
    for files in group.gather(lacking):
        for name, content in files.items() if group.is_first else ():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def _files(folder: Path) -> set[str]:
    """The files below ``folder``, by their paths from there."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def _has_torch_group() -> bool:
    """Whether torch has formed a group; a process that has not imported torch is in none."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()
