"""Progress where nothing can be redrawn: one line an event that matters."""

from __future__ import annotations

import time

from tuner.display.progress import Progress
from tuner.runs.failure import Failure
from tuner.runs.results import ResultSet
from tuner.runs.trial import Report, Trial
from tuner.spec.quantities import counted
from tuner.spec.values import metrics_line
from tuner.visualization.text_tables import config_line


class PlainProgress(Progress):
    """One line an event that matters."""

    _ended = 0
    """Trials that have ended."""

    def started(self, results: ResultSet) -> None:
        super().started(results)
        self._ended = sum(trial.has_ended for trial in results.trials)
        provenance = results.provenance
        counts = f"{provenance['trials']} trials, {provenance['slots']} at once, seed {provenance['seed']}"
        self._line(f"{results.folder.location}: {counts}")

    def took_the_lead(self, trial: Trial, report: Report) -> None:
        assert self._results is not None
        lead = "joins the front" if self._results.has_front else "takes the lead"
        reached = f"{metrics_line(self._results.values(report))} at step {report.step}"
        self._line(f"trial {trial.label} {lead}, {reached}: {config_line(trial.config)}")

    def ended(self, trial: Trial) -> None:
        results = self._results
        assert results is not None
        best = f", best {metrics_line(results.values(trial.best))}" if trial.best else ""
        self._ended += 1
        why = f" ({trial.reason})" if trial.reason else ""
        count = f"[{self._ended}/{results.provenance['trials']}]"
        steps = f"{counted(trial.steps, 'step')}{_again(trial)}"
        self._line(f"{count} trial {trial.label} {trial.status} after {steps}{best}{why}")

    def retried(self, trial: Trial, failure: Failure) -> None:
        self._line(f"trial {trial.label} is tried again: {failure}")

    def _line(self, text: str) -> None:
        self._screen.say(f"[{time.monotonic() - self._begun:7.1f}s] {text}")


def _again(trial: Trial) -> str:
    """Why the trial may have made more steps than its scheduler's ``max_t``."""
    times = len(trial.segments) - 1
    if times < 1:
        return ""
    return f", some of them again: it continued from a better trial {'once' if times == 1 else f'{times} times'}"
