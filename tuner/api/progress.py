"""The progress of a search that Python started, and the results that its errors carry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from tuner.actions.run import Say
from tuner.display.choice import progress_on
from tuner.display.notebook import NotebookProgress, in_notebook
from tuner.display.terminal import TerminalCapture
from tuner.experiment.reader import Experiment
from tuner.runs.results import ResultSet

if TYPE_CHECKING:
    from tuner.execution.recorder import Listener

Show = Literal["auto", "none"]
"""Whether a search shows its progress: in the notebook or on the terminal, or not at all."""


def with_progress(
    experiment: Callable[[], Experiment],
    callbacks: Sequence[Listener],
    progress: Show,
    search: Callable[[Sequence[Listener], Say], ResultSet],
) -> ResultSet:
    """Runs ``search`` with what shows it here among its listeners; ``experiment`` is read only if that needs it."""
    if progress == "none":
        return search(callbacks, _say)
    if in_notebook():
        below = NotebookProgress()
        return search([below, *callbacks], below.say)
    with TerminalCapture() as screen:
        return search([progress_on(screen, experiment().spec), *callbacks], screen.say)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
