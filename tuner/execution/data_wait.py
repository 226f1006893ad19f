"""For how long a training waits for its data: the time in ``next`` of a torch DataLoader.

With ``num_workers=0`` that is the reading itself, otherwise the wait for the processes that read. Torch has no hook for
it, so the iterators' ``__next__`` is wrapped (torch 2.15). Waits in other threads than the training's, such as those
that fetch ahead, are not counted.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from typing import Any

_LOADER = "torch.utils.data.dataloader"


class _Wait:
    """Of the trial that runs in this process."""

    def __init__(self) -> None:
        self.thread = 0
        self.seconds = 0.0
        self.has_loader = False
        self.is_whole = False
        """Whether loaders were wrapped before the training began."""
        self.within = False
        """Whether the training is in a loader: one may read from another."""


_wait = _Wait()


def begin() -> None:
    """A trial begins, and trains in this thread."""
    _wait.thread, _wait.seconds = threading.get_ident(), 0.0
    _wait.has_loader = _wait.is_whole = _wait.within = False
    wrap()


def wrap() -> None:
    """Counts from now on, if torch's loaders are imported."""
    iterator = getattr(sys.modules.get(_LOADER), "_BaseDataLoaderIter", None)
    if iterator is None:
        return
    if not hasattr(iterator.__next__, "__wrapped__"):
        iterator.__next__ = _timed(iterator.__next__)
    _wait.is_whole = True


def seconds() -> float | None:
    """For how long the trial has waited since the last call; None if it has no loader, or it is not known."""
    if not (_wait.has_loader and _wait.is_whole):
        return None
    waited, _wait.seconds = _wait.seconds, 0.0
    return waited


def _timed(function: Any) -> Any:
    @functools.wraps(function)
    def timed(self: Any) -> Any:
        if threading.get_ident() != _wait.thread or _wait.within:
            return function(self)
        _wait.within = _wait.has_loader = True
        begun = time.perf_counter()
        try:
            return function(self)
        finally:
            _wait.seconds += time.perf_counter() - begun
            _wait.within = False

    return timed
