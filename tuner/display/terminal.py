"""The user's terminal during a run."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any

from tuner.printable import printable
from tuner.runs.results import LOG, ResultSet
from tuner.storage.folder import open_own


class TerminalCapture:
    """Holds the user's terminal during a run: all other output, C code's too, goes to the run folder's log."""

    def __init__(self) -> None:
        self.results: ResultSet | None = None
        self.above: Callable[[str], None] | None = None
        """Shows a line above what redraws in place, while something does."""
        self._afterwards: list[Callable[[], None]] = []

    def __enter__(self) -> TerminalCapture:
        _flush()
        self._out, self._err = os.dup(1), os.dup(2)
        self._terminal = _Terminal(os.dup(2), "w")
        buffer = io.BufferedWriter(self._terminal)
        self.file: IO[str] = io.TextIOWrapper(buffer, encoding="utf-8", errors="replace", line_buffering=True)
        os.dup2(2, 1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        os.dup2(self._out, 1)
        if self._terminal.is_gone:  # no message from now on may fail for it
            for descriptor in (1, 2) if os.path.sameopenfile(self._out, self._err) else (2,):
                _drop(descriptor)
        for descriptor in (self._out, self._err):
            os.close(descriptor)
        self.file.close()
        for action in self._afterwards:
            action()

    def after(self, action: Callable[[], None]) -> None:
        """Calls ``action`` when the terminal is given back."""
        self._afterwards.append(action)

    def say(self, text: str) -> None:
        """One line for the user, now; above the live table where there is one."""
        text = printable(text)
        if self.above is not None:
            self.above(text)
        else:
            self.file.write(text + "\n")

    def take(self, results: ResultSet) -> None:
        """From now on other output goes to the log of ``results``."""
        self.results = results
        _flush()
        if results.folder.is_local:
            log = open_own(results.folder.local_path / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        else:
            log = os.open(os.devnull, os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)

    def release(self) -> None:
        """Other output goes to the terminal again."""
        _flush()
        os.dup2(self._err, 1)
        os.dup2(self._err, 2)


class _Terminal(io.FileIO):
    """Drops texts for a terminal that is gone (a lost connection, a pipe whose reader ended).

    The search does not need its reader, and the run folder has every message.
    """

    is_gone = False

    def write(self, text: Any) -> int:
        try:
            return super().write(text)
        except OSError:
            self.is_gone = True
            _drop(self.fileno())
            return super().write(text)


def _drop(descriptor: int) -> None:
    """From now on what is written to ``descriptor`` is dropped."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
