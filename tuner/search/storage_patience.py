"""Storage that fails for a while: it is tried again, ever more rarely, and after some time given up.

A service that is overloaded, credentials that are renewed, a file server that starts again, a disk on which somebody
makes room: all of these look like an OSError, and most of them end.
"""

from __future__ import annotations

import errno
import re
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

from tuner.storage.folder import RunFolder

FIRST_S, LONGEST_S = 0.5, 15.0
"""The pause before the second try, and the longest one; each is twice the one before."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""No room, or a file system that turned read-only: it does not mend itself within a moment."""

LASTING = (errno.EISDIR, errno.ENOTDIR, errno.ELOOP)
"""A folder or a link in the place of a file, or a file in the place of a folder: somebody must take it away."""

_TORCH_FULL = re.compile(r"PytorchStreamWriter failed|inline_container.*(unexpected pos|write failed)")
"""What `torch.save` raises, as a RuntimeError, where its file cannot grow."""

PROBE_BYTES = 1 << 20

T = TypeVar("T")


class StoragePatience:
    """How long what fails with OSError is tried again."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self.error: OSError | None = None
        """What it fails with; None while it works."""
        self._since = self._next = 0.0
        self._pause = FIRST_S

    @property
    def failing_for(self) -> float:
        """Seconds since it failed first."""
        return self._clock() - self._since if self.error else 0.0

    @property
    def is_due(self) -> bool:
        """Whether it should be tried now."""
        return self.error is None or self._clock() >= self._next

    def failed(self, error: OSError) -> None:
        """It was tried and failed. Raises ``error`` if it has failed for too long, or will not end by itself."""
        now = self._clock()
        if self.error is None:
            self._since, self._pause = now, FIRST_S
        else:
            self._pause = min(2 * self._pause, LONGEST_S)
        self.error = error
        self._next = min(now + self._pause, self._since + self._seconds)
        if now >= self._since + self._seconds or error.errno in LASTING:
            raise error

    def worked(self) -> None:
        """It was tried and worked."""
        self.error = None

    def wait(self) -> None:
        """Sleeps until it should be tried again."""
        self._sleep(max(0.0, self._next - self._clock()))

    def insist(self, operation: Callable[[], T]) -> T:
        """Calls ``operation`` until it works, and returns its result. Raises the OSError with which it gives up."""
        while True:
            try:
                found = operation()
            except OSError as error:
                self.failed(error)
                self.wait()
            else:
                self.worked()
                return found


def probe(folder: RunFolder) -> None:
    """Writes `PROBE_BYTES` to a file of its own in ``folder``, and deletes it. Raises OSError if that fails."""
    name = f".probe-{uuid.uuid4().hex}"
    try:
        folder.write(name, bytes(PROBE_BYTES))
    finally:
        _delete(folder, name)


def _delete(folder: RunFolder, name: str) -> None:
    if folder.exists(name):
        folder.filesystem.delete_file((folder / name).path)


def is_of_a_full_disk(error: BaseException) -> bool:
    """Whether ``error``, or what it was raised from, says that a file system has no room, or is read-only."""
    return any(
        (isinstance(link, OSError) and link.errno in FULL)
        or (isinstance(link, RuntimeError) and bool(_TORCH_FULL.search(str(link))))
        for link in chain(error)
    )


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """``error``, what it was raised from, and so on."""
    while error is not None:
        yield error
        error = error.__cause__


def in_words(error: OSError) -> str:
    """In one line."""
    return " ".join(str(error).split()) or type(error).__name__
