"""Preflight: is this machine fit for a search, and does an experiment run on it?

A check is a small function that returns a `Finding`. Its arguments are all that it needs besides this machine.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner.doctor import gpu, installation, system
from tuner.doctor.finding import Finding
from tuner.errors import EnvironmentFailure, InputError
from tuner.storage.folder import STORAGE, RunFolder

__all__ = ["Finding", "check_machine", "examine", "exit_status"]


def examine(
    experiment: str | Path | None = None, overrides: Sequence[str] = (), *, storage: str = STORAGE
) -> Iterator[Finding]:
    """Every check, as it is done: those of this machine, then those of ``experiment`` (a YAML file) on it.

    ``overrides``: as of ``--set``. Of the experiment's checks none comes after one that failed. Raises Interrupted on
    Ctrl-C in the trial; nothing is left behind.
    """
    yield from check_machine(storage)
    if experiment is not None:
        from tuner.doctor.experiment import check_experiment

        yield from check_experiment(experiment, overrides, storage)


def exit_status(findings: Sequence[Finding]) -> int:
    """0 without an error, 4 where the machine has one, 2 where the experiment has."""
    statuses = {finding.status for finding in findings if finding.level == "error"}
    machine = EnvironmentFailure.exit_status
    return 0 if not statuses else machine if machine in statuses else InputError.exit_status


def check_machine(storage: str) -> Iterator[Finding]:
    """Every check of this machine, as it is done; ``storage``: folder or URI of the run folders."""
    yield from installation.check()
    yield gpu.driver_and_torch()
    yield system.processor_and_memory()
    if importlib.util.find_spec("pyarrow"):  # else `packages` has said that it is missing
        yield from _check_storage(storage)
    yield system.shared_memory()
    yield system.open_files()
    yield system.ports()
    yield system.token()


def _check_storage(storage: str) -> Iterator[Finding]:
    try:
        folder = RunFolder.at(storage)
    except InputError as error:
        yield Finding("error", "storage", str(error), "choose another with --storage", error.exit_status)
        return
    yield system.disk(folder)
    yield system.storage_writable(folder)
    yield system.clock(folder)
