"""The driver's writes to a run folder while the search runs, also if the storage fails for a while.

No decision of the search depends on them. During a failure events wait in the journal's writer, deletions are kept for
later, tables and the snapshot are left out, and no trial starts. The search waits only for files that a trial is about
to read. If the storage fails for longer than ``failures.storage_patience``, the search ends and can be resumed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from tuner.search.control import SearchControl
from tuner.search.storage_patience import StoragePatience, in_words, probe
from tuner.spec.quantities import format_duration
from tuner.storage.folder import RunFolder

T = TypeVar("T")


class RunFolderWriter:
    """The storage of a running search. Each method raises KeyboardInterrupt if it is given up (`SearchControl`)."""

    def __init__(self, folder: RunFolder, control: SearchControl, patience: StoragePatience | None = None) -> None:
        self._folder = folder
        self._control = control
        self._patience = patience or StoragePatience(control.storage_patience)
        self._owed: deque[Callable[[], None]] = deque()
        """What is to be done as soon as the storage works again, in order."""
        self._failed: Callable[[], None] | None = None
        """What failed last: the storage works again when that does."""

    @property
    def fails(self) -> bool:
        """Whether it failed when it was tried last."""
        return self._patience.error is not None

    def later(self, operation: Callable[[], None]) -> None:
        """Calls ``operation`` now, or when the storage works again. It may be called more than once."""
        self._owed.append(operation)
        self.attempt(lambda: None)

    def attempt(self, operation: Callable[[], None]) -> bool:
        """Calls ``operation``; whether it worked. Not called while the storage fails and is not yet due to be tried."""
        with self._control.storing(self._folder):
            if not self._patience.is_due:
                return False
            try:
                self._caught_up(operation)
            except OSError as error:
                self._failed = self._failed or operation
                self._fails_with(error)
                return False
            self._worked()
            return True

    def insist(self, operation: Callable[[], T]) -> T:
        """Calls ``operation`` until the storage works, perhaps more than once, and returns its result."""
        with self._control.storing(self._folder):
            while True:
                try:
                    found = self._caught_up(operation)
                except OSError as error:
                    self._fails_with(error)
                    self._patience.wait()
                else:
                    self._worked()
                    return found

    def answers(self) -> bool:
        """Whether the run folder can be written now, for somebody who could not."""
        return not self.fails and self.attempt(lambda: probe(self._folder))

    def has(self, folder: RunFolder) -> bool:
        """Whether ``folder``, below the run folder, is there: where that fails for a while, nothing of it is gone."""

        def found() -> bool:
            if folder.exists():
                return True
            probe(self._folder)
            return folder.exists()

        return self.insist(found)

    def _fails_with(self, error: OSError) -> None:
        is_new = not self.fails
        with self._control.storing(self._folder):
            self._patience.failed(error)
        if is_new:
            waiting = (
                f"it is tried again for {format_duration(self._control.storage_patience)} (failures.storage_patience)"
            )
            why = f"{self._folder.location} cannot be used: {in_words(error)}"
            self._control.say(f"NOTICE: {why}; no trial starts, and {waiting}")

    def _worked(self) -> None:
        if self.fails:
            after = format_duration(self._patience.failing_for)
            self._patience.worked()
            self._control.say(f"NOTICE: {self._folder.location} can be used again, after {after}: the search continues")

    def _caught_up(self, operation: Callable[[], T]) -> T:
        """``operation``, after what failed and all that is owed."""
        if self._failed:
            self._failed()
            self._failed = None
        while self._owed:
            self._owed[0]()
            self._owed.popleft()
        return operation()
