"""Which view of a running search a terminal gets."""

from __future__ import annotations

import os

from tuner.display.live import LiveProgress
from tuner.display.plain import PlainProgress
from tuner.display.progress import Progress
from tuner.display.terminal import TerminalCapture
from tuner.experiment.spec import ExperimentSpec

PLAIN = ("CI", "JPY_PARENT_PID")
"""Environment variables of places whose terminals only collect text: continuous integration, and notebooks."""


def progress_on(screen: TerminalCapture, spec: ExperimentSpec) -> Progress:
    """The listener that shows a search for ``spec`` on ``screen``: in place on a terminal, else line by line."""
    plain = not screen.file.isatty() or os.environ.get("TERM") in (None, "", "dumb", "unknown")
    if plain or any(os.environ.get(name) for name in PLAIN):
        return PlainProgress(screen)
    return LiveProgress(screen, spec)
