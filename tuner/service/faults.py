"""What fails in a pass of the queue, while the pass continues."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tuner.errors import EnvironmentFailure, LockLost
from tuner.storage.folder import RunFolder, reason


class Faults:
    """What fails in a pass."""

    def __init__(self, storage: RunFolder) -> None:
        self._storage = storage
        self._first: OSError | EnvironmentFailure | None = None
        self.of_searches: dict[str, str] = {}
        """By its name why something cannot be done for a single search."""

    @contextlib.contextmanager
    def kept(self, search: str | None = None) -> Iterator[None]:
        """Within: a failing storage or cluster ends the block only. LockLost passes: all must end then.

        ``search``: the only one that the block is about.
        """
        try:
            yield
        except LockLost:
            raise
        except (OSError, EnvironmentFailure) as error:
            if search is None:
                self._first = self._first or error
            else:
                where = (self._storage / search).location
                self.of_searches[search] = f"{where}: {reason(error)}" if isinstance(error, OSError) else str(error)

    def told(self) -> None:
        """Raises the first failure that is not of a single search."""
        if self._first is not None:
            raise self._first
