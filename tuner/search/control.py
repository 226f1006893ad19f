"""What can end a search before its last trial: its budget, the user, or an error that no trial can escape."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

from tuner.errors import EnvironmentFailure, LockLost, TunerError
from tuner.runs.results import how_to_resume
from tuner.storage.folder import RunFolder

STOPPING = "stopping: running trials continue to their next checkpoint; once more to stop at once"

_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a search to stop; SIGHUP comes when the terminal is gone, as when an ssh session drops."""


@dataclass
class SearchControl:
    """State of a running search that its parts share."""

    say: Callable[[str], None] = lambda text: None
    """Called with what the user must know at once."""
    interrupted: bool = False
    """The user asked once to stop: no trial starts, each running one continues to its next report."""
    asked_by: str = ""
    """The name of the signal by which the user asked."""
    returned: bool = False
    """Ray's loop has returned: no event is half applied."""
    stop_reason: str = ""
    """Which limit ended the search; empty while none did."""
    fatal: TunerError | None = None
    """An error that every trial would meet."""
    storage_patience: float = 0.0
    """Seconds for which storage that fails is tried again."""
    elapsed_before: float = 0.0
    """Seconds that a resumed search had run before."""
    started: float | None = None
    """``time.monotonic()`` at the first trial's start."""

    @property
    def finished(self) -> bool:
        """Whether the search came to its end. Everything else leaves a run that can be resumed."""
        return self.returned and not self.interrupted and self.fatal is None

    @property
    def reason(self) -> str:
        """Why the search did not come to its end, in one line: an error, or a signal; empty if it did."""
        return " ".join(str(self.fatal).split()) if self.fatal else self.asked_by

    def first_trial_started(self) -> None:
        if self.started is None:
            self.started = time.monotonic()

    def stand_still(self) -> None:
        """No trial runs, as people want it: the time until the next one starts does not count."""
        self.elapsed_before, self.started = self.elapsed, None

    @property
    def elapsed(self) -> float:
        """Seconds since the first trial started, without the time between an interruption and `resume`."""
        return self.elapsed_before + (time.monotonic() - self.started if self.started is not None else 0.0)

    def give_up(self, error: TunerError) -> None:
        """Ends the search at once, from another thread than the one that runs it."""
        self.fatal = error
        self.interrupted = True
        signal.raise_signal(signal.SIGINT)

    @contextlib.contextmanager
    def storing(self, folder: RunFolder) -> Iterator[None]:
        """Within: where ``folder`` cannot be used, or is another process's now, the search ends and can be resumed.

        Raises KeyboardInterrupt, which no ``except Exception`` on the way out of Ray's loop takes for a trial's error.
        Once the folder is another process's, nothing within is done.
        """
        if isinstance(self.fatal, LockLost):
            raise KeyboardInterrupt
        try:
            yield
        except OSError as error:
            self.storage_lost(folder, error)
            raise KeyboardInterrupt from error
        except LockLost as error:
            self.lock_lost(folder, error)
            raise KeyboardInterrupt from error

    def storage_lost(self, folder: RunFolder, error: object) -> None:
        """``folder`` cannot be written any more."""
        remedy = f"mend that; to continue the search: {how_to_resume(folder)}"
        self.fatal = EnvironmentFailure(f"{folder.location} cannot be written: {error}; {remedy}")
        self.interrupted = True

    def lock_lost(self, folder: RunFolder, error: LockLost) -> None:
        """Another process works on ``folder`` now."""
        self.fatal = LockLost(f"{error}; to continue the search when the other has ended: {how_to_resume(folder)}")
        self.interrupted = True

    @contextlib.contextmanager
    def on_interrupt(self, say: Callable[[str], None]) -> Iterator[None]:
        """Within: the first signal of `_STOP` asks running trials to save, the second raises KeyboardInterrupt.

        SIGHUP never counts as the second: the kernel and the shell both send it if a terminal is gone. If it is ignored
        (``nohup``), it stays ignored.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        # a thread of its own, as the signal may come in the midst of writing another line
        told = threading.Thread(target=say, args=(STOPPING,))

        def handle(number: int, frame: FrameType | None) -> None:
            if self.interrupted:
                if number != signal.SIGHUP:
                    raise KeyboardInterrupt
                return
            self.interrupted, self.asked_by = True, signal.Signals(number).name
            told.start()

        handled = [n for n in _STOP if n != signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
        before = {number: signal.signal(number, handle) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if told.ident is not None:
                told.join()  # while there still is something to say it on
