"""What Python commands of a search that runs in another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.actions.control import Outcome, command
from tuner.errors import InputError
from tuner.runs.results import ResultSet


class Controlled:
    """The part of `tuner.Run` that commands the search. Each method waits for the answer of the search.

    Each raises InputError if the search refuses the command, or no process works on the run, and EnvironmentFailure if
    the search does not answer within a minute.
    """

    results: ResultSet

    def stop_trial(self, trial: str | int) -> None:
        """Ends a trial at its next report; it keeps its checkpoint.

        Args:
            trial: Its id or number.

        Raises:
            InputError: If no trial of that name is open, or no process works on the run.
            EnvironmentFailure: If the search does not answer.
        """
        self._command("stop-trial", {"trial": trial})

    def pause(self) -> None:
        """Pauses each trial at its next checkpoint, and frees its resources, until `unpause`.

        Raises:
            InputError: If no process works on the run.
            EnvironmentFailure: If the search does not answer.
        """
        self._command("pause")

    def unpause(self) -> None:
        """Continues a paused search.

        Raises:
            InputError: If no process works on the run.
            EnvironmentFailure: If the search does not answer.
        """
        self._command("continue")

    def limit_slots(self, trials: int | None) -> None:
        """Lets fewer trials run at once from now on; those that are too many are paused at their next checkpoint.

        Args:
            trials: How many at most; None: as many as the machines take.

        Raises:
            InputError: If no process works on the run, or ``trials`` is 0: see `pause`.
            EnvironmentFailure: If the search does not answer.
        """
        if trials == 0:
            raise InputError("slots 0: no trial could run; to let all of them wait: pause")
        self._command("slots", {"trials": trials})

    def _command(self, do: str, arguments: Mapping[str, Any] | None = None) -> Outcome:
        outcome = command(self.results.folder, do, arguments)
        if not outcome.done:
            raise InputError(f"{do}: refused: {outcome.reason}")
        return outcome
