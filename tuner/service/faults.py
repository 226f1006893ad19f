"""Faults of single searches in a pass of the queue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tuner.errors import EnvironmentFailure, LockLost


class Faults:
    """Faults of single searches in a pass: the others are not to wait for them."""

    def __init__(self) -> None:
        self._first: OSError | EnvironmentFailure | None = None

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Within: a failing storage or cluster ends the block, and is kept. LockLost passes: all must end then."""
        try:
            yield
        except LockLost:
            raise
        except (OSError, EnvironmentFailure) as error:
            self._first = self._first or error

    def told(self) -> None:
        """Raises the first one."""
        if self._first is not None:
            raise self._first
