"""Progress in a notebook: one output below the cell, redrawn in place."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any

from tuner.runs.failure import Failure
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.spec.quantities import format_duration
from tuner.spec.values import metrics_line
from tuner.visualization.notebook import table
from tuner.visualization.text_tables import config_line, counts

REDRAW_S = 1.0

SHARE = 0.02
"""Of the time that may go into drawing."""

ROWS = 5
"""Trials in the table at most."""

MESSAGES = 5
"""The latest messages that are shown."""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


class NotebookProgress:
    """Shows a running search below the cell; the result, which the cell returns, is not repeated here."""

    def __init__(self) -> None:
        self._results: ResultSet | None = None
        self._begun = time.monotonic()
        self._next = 0.0
        self._messages: list[str] = []
        self._handle: Any = None
        self._over = False

    def say(self, text: str) -> None:
        """One message for the user, now."""
        self._messages.append(text)
        self._draw()

    def started(self, results: ResultSet) -> None:
        self._results = results
        self._draw()

    def reported(self, trial: Trial, report: Report) -> None: ...

    def retried(self, trial: Trial, failure: Failure) -> None:
        self._messages.append(f"trial {trial.label} is tried again: {failure}")

    def ended(self, trial: Trial) -> None:
        if trial.status == "failed":
            self._messages.append(f"trial {trial.label} failed: {trial.reason}")

    def tick(self) -> None:
        begun = time.monotonic()
        if begun >= self._next:
            self._draw()
            self._next = begun + max(REDRAW_S, (time.monotonic() - begun) / SHARE)

    def finished(self, results: ResultSet) -> None:
        self._over = True
        self._draw()

    def _draw(self) -> None:
        from IPython.display import HTML, display

        shown = HTML(self._html())
        if self._handle is None:
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)

    def _html(self) -> str:
        lines = [escape(text) for text in self._messages[-MESSAGES:]]
        results = self._results
        if results is None:
            return "<br>".join(lines)
        total, took = results.provenance.get("trials"), format_duration(time.monotonic() - self._begun)
        begun = f"{len(results.trials)} of {total} trials begun"
        lines.append(f"<b>{escape(results.name)}</b>: {begun}, {counts(results) or 'none yet'}; {took}")
        best = results.best
        if best is not None and best.best is not None:
            value = metrics_line(results.values(best.best))
            lines.append(
                escape(f"best: trial {best.label}, {value} at step {best.best.step}: {config_line(best.config)}")
            )
        return "<br>".join(lines) + ("" if self._over else table(results, ROWS))
