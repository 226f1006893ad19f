"""What one attempt at a trial writes to the run folder, from its process.

An attempt that the driver holds for dead may live: its node was only cut off, and it continues to train and to save
beside its successor. So no two attempts have checkpoints of the same name. The files of the elder one are in
nobody's way, and as its reports no longer arrive nothing ever refers to them.
"""

from __future__ import annotations

import platform
import uuid
from collections.abc import Callable
from typing import TypeVar

from ray.train._internal.storage import StorageContext
from ray.tune import Checkpoint

from tuner.execution.failure_classifier import StorageFails
from tuner.search.storage_patience import FULL, StoragePatience, in_words, probe
from tuner.storage.folder import RunFolder

T = TypeVar("T")


class AttemptStorage(StorageContext):  # type: ignore[misc]
    """Ray's, for one attempt at a trial. If the run folder fails, it tries again for some time."""

    def __init__(self, rays: StorageContext, patience: float) -> None:
        self.__dict__.update(vars(rays))
        self._attempt = uuid.uuid4().hex[:8]
        self._seconds = patience

    @property
    def checkpoint_dir_name(self) -> str:
        return f"{super().checkpoint_dir_name}_{self._attempt}"

    def persist_current_checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        """Copies ``checkpoint`` to the run folder. Raises StorageFails; OSError where it cannot be read itself."""

        def copy() -> Checkpoint:
            try:
                return StorageContext.persist_current_checkpoint(self, checkpoint)
            except OSError as error:
                if unreadable := _unreadable(checkpoint):
                    raise _Unreadable from unreadable
                if error.errno in FULL:  # the driver says so, and lets the trial wait for room
                    raise self._fails(error) from error
                raise

        try:
            return self.insist(copy)
        except _Unreadable as error:
            raise error.__cause__ from None  # type: ignore[misc]

    def insist(self, operation: Callable[[], T]) -> T:
        """What ``operation`` on the run folder returns. Raises StorageFails."""
        try:
            return StoragePatience(self._seconds).insist(operation)
        except OSError as error:
            raise self._fails(error) from error

    def check(self) -> None:
        """Writes a file to the run folder and deletes it. Raises StorageFails."""
        try:
            probe(RunFolder(self.storage_filesystem, self.experiment_fs_path, self.experiment_fs_path))
        except OSError as error:
            raise self._fails(error) from error

    def _fails(self, error: OSError) -> StorageFails:
        return StorageFails(f"the run folder cannot be written on node {platform.node()}: {in_words(error)}")


class _Unreadable(Exception):
    """Of a checkpoint that the trainable reports."""


def _unreadable(checkpoint: Checkpoint) -> OSError | None:
    """Why ``checkpoint``, a folder of the trainable's, cannot be read; None if it can."""
    from pyarrow.fs import FileSelector, FileType

    try:
        for info in checkpoint.filesystem.get_file_info(FileSelector(checkpoint.path, recursive=True)):
            if info.type == FileType.File:
                with checkpoint.filesystem.open_input_stream(info.path, compression=None) as stream:
                    stream.read(1)
    except OSError as error:
        return error
    return None
