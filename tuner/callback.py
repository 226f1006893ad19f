"""Your own code that runs at the events of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.runs.failure import Failure
    from tuner.runs.results import ResultSet
    from tuner.runs.trial import Report, Trial


class Callback:
    """Follows a search: every method is called when its event happens, and does nothing unless you define it.

    The methods run in the process that drives the search, between two of its events: the search waits for them, so they
    must be quick. A method that raises ends the search with an error that names the callback; the search can be
    resumed. A resumed search calls `started` again, with the trials that it already has, and then passes on new events
    only. A report is in the journal before `reported` is called.

    Example:
        >>> from tuner.callback import Callback
        >>> class Announce(Callback):
        ...     def started(self, results):
        ...         self.metric = results.metric
        ...     def reported(self, trial, report):
        ...         print(trial.id, report.step, report.metrics[self.metric])
        >>> from tuner.runs.trial import Report, Trial
        >>> announce = Announce()
        >>> announce.metric = "loss"
        >>> announce.reported(Trial("t1", 1, {"lr": 0.1}), Report("t1", 1, 2.0, 0.0, {"loss": 0.5}))
        t1 1 0.5
        >>> announce.tick()
    """

    def started(self, results: ResultSet) -> None:
        """The search begins or continues.

        Args:
            results: All trials of the run, and its folder. It is the object that the search fills, so it may be kept
                to look at later; it must not be changed.
        """

    def reported(self, trial: Trial, report: Report) -> None:
        """A trial reported.

        Args:
            trial: The trial, which already holds the report.
            report: What it reported: its metrics by name, its number, and its checkpoint.
        """

    def retried(self, trial: Trial, failure: Failure) -> None:
        """An attempt at a trial failed, and the trial will be tried again.

        Args:
            trial: The trial.
            failure: What ended the attempt.
        """

    def ended(self, trial: Trial) -> None:
        """A trial ended.

        Args:
            trial: The trial; its ``status`` is ``completed``, ``stopped`` or ``failed``, and ``reason`` says why.
        """

    def tick(self) -> None:
        """The search is alive: called several times a second, also while nothing happens."""

    def finished(self, results: ResultSet) -> None:
        """The search ended, was interrupted, or failed; the run folder is complete.

        Args:
            results: All trials of the run.
        """
