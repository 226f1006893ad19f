"""What fails in a pass of the queue, while the pass continues."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tuner.errors import EnvironmentFailure, LockLost
from tuner.storage.folder import RunFolder, reason


class Faults:
    """What fails in a pass."""

    def __init__(self) -> None:
        self._first: OSError | EnvironmentFailure | None = None
        self.of_searches: dict[str, str] = {}
        """By its name why something cannot be done for a single search."""

    @contextlib.contextmanager
    def kept(self, search: str | None = None) -> Iterator[None]:
        """Within: a failing storage or cluster ends the block only. LockLost passes: all must end then.

        ``search``: the one that an EnvironmentFailure is about.
        """
        try:
            yield
        except LockLost:
            raise
        except (OSError, EnvironmentFailure) as error:
            if search is not None and isinstance(error, EnvironmentFailure):
                self.of_searches[search] = str(error)
            else:
                self._first = self._first or error

    def told(self) -> None:
        """Raises the first failure that is not of a single search."""
        if self._first is not None:
            raise self._first


@contextlib.contextmanager
def of_run(folder: RunFolder) -> Iterator[None]:
    """Within: raises EnvironmentFailure, which names the run folder, in place of OSError."""
    try:
        yield
    except OSError as error:
        raise EnvironmentFailure(f"{folder.location}: {reason(error)}") from None
