"""The trial around an integration: whether there is one, where it continues from, and a report to it.

A framework may train one model in several processes (`resources: {workers: N}`). Each of them is in the trial, and the
first one reports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.training.reporting import ProcessGroupNotFormed, get_checkpoint, in_trial, to_number


def active() -> bool:
    """Whether this process trains for a trial of Ray Tune, under tuner or not."""
    return in_trial()


def check_processes(framework: str, found: int, remedy: str) -> None:
    """Raises ProcessGroupNotFormed if the trial has more processes than the ``found`` ones that the framework knows of.

    A trial whose processes form no group at all is refused at its first report.
    """
    workers = int(os.environ.get("WORLD_SIZE", "1"))
    if in_trial() and found < workers:
        raise ProcessGroupNotFormed(
            f"resources.workers: {workers}, but {framework} trains this model in {found}; {remedy}"
        )


def checkpoint_folder() -> Path | None:
    """The folder of the checkpoint that the trial continues from, on this node; None if it begins, or there is none."""
    return get_checkpoint()


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


def _complete(folder: Path) -> None:
    distributed = sys.modules.get("torch.distributed")  # a process that has not imported torch is in no group
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return
    from tuner.training.distributed import joined

    group = joined()
    names = group.from_first(lambda: _files(folder))
    lacking = {name: (folder / name).read_bytes() for name in _files(folder) - names}
    for files in group.gather(lacking):
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def _files(folder: Path) -> set[str]:
    """The files below ``folder``, by their paths from there."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
