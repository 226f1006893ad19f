"""Progress that redraws in place on a terminal."""

from __future__ import annotations

import os
import time

from rich.console import Console
from rich.live import Live

from tuner.display.dashboard import render
from tuner.display.progress import Progress
from tuner.display.terminal import TerminalCapture
from tuner.execution.gpus import Gpus
from tuner.experiment.spec import ExperimentSpec
from tuner.runs.failure import Failure
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial

REDRAW_S = 0.5

SHARE = 0.02
"""Of the time that may go into drawing: searches with many trials are redrawn less often."""

USUAL = os.terminal_size((80, 24))
"""For a terminal that does not know its size, or is gone."""

BEGIN_SYNCHRONIZED, END_SYNCHRONIZED = "\x1b[?2026h", "\x1b[?2026l"
"""A terminal shows all that comes between them at once, without flicker; one that does not know them ignores them."""


class LiveProgress(Progress):
    """A screenful that redraws in place; messages stay above it."""

    def __init__(self, screen: TerminalCapture, spec: ExperimentSpec) -> None:
        super().__init__(screen)
        self._spec = spec
        self._next = 0.0
        self._causes: list[str] = []

    def started(self, results: ResultSet) -> None:
        super().started(results)
        self._gpus = Gpus()
        self._console = Console(file=self._screen.file)
        self._display = self._shown()
        self._screen.above = self._say
        self._draw()

    def ended(self, trial: Trial) -> None:
        if trial.status == "failed":
            self._causes.append(f"#{trial.number} failed: {trial.reason}")

    def retried(self, trial: Trial, failure: Failure) -> None:
        self._causes.append(f"#{trial.number} is tried again: {failure}")

    def tick(self) -> None:
        begun = time.monotonic()
        if begun < self._next:
            return
        self._draw()
        self._next = begun + max(REDRAW_S, (time.monotonic() - begun) / SHARE)

    def finished(self, results: ResultSet) -> None:
        self._display.stop()
        self._screen.above = None
        super().finished(results)

    def _shown(self) -> Live:
        display = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        display.start()
        return display

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def _draw(self) -> None:
        assert self._results is not None
        file = self._screen.file
        size = self._size()
        if (size.columns, size.lines) != self._console.size:
            self._resize(size)
        shown = render(self._results, self._spec, self._causes, self._gpus.read(), size, time.time())
        file.write(BEGIN_SYNCHRONIZED)
        self._display.update(shown, refresh=True)
        file.write(END_SYNCHRONIZED)
        file.flush()

    def _size(self) -> os.terminal_size:
        try:
            size = os.get_terminal_size(self._screen.file.fileno())
        except OSError:  # it is gone
            return USUAL
        return size if all(size) else USUAL

    def _resize(self, size: os.terminal_size) -> None:
        """Begins anew on a clear screen: the terminal has wrapped what is on it."""
        from rich.console import ConsoleDimensions

        self._display.stop()
        self._console.size = ConsoleDimensions(*size)
        self._console.clear()
        self._display = self._shown()
