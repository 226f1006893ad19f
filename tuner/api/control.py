"""Commands from Python to a search that runs in another process."""

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

    def keep_trial(self, trial: str | int) -> None:
        """Lets the scheduler stop a trial no more: it continues to its end.

        Args:
            trial: Its id or number.

        Raises:
            InputError: If no trial of that name is open, its scheduler stops none, or no process works on the run.
            EnvironmentFailure: If the search does not answer.
        """
        self._command("keep-trial", {"trial": trial})

    def add_trial(self, config: Mapping[str, Any]) -> str:
        """Runs a configuration as the next trial, on top of those of the budget.

        Args:
            config: Its parameters, nested as the search space is, or with dotted names; constants may be left out.

        Returns:
            The id of the trial.

        Raises:
            InputError: If it is not in the search space, or no process works on the run.
            EnvironmentFailure: If the search does not answer.
        """
        return self._command("add", {"config": dict(config)}).trials[0]

    def clone_trial(
        self, trial: str | int, changes: Mapping[str, Any] | None = None, *, checkpoint: bool = False
    ) -> str:
        """Runs a trial once more, with other values of some parameters.

        Args:
            trial: Its id or number.
            changes: The parameters that are other than in the trial, as of `add_trial`.
            checkpoint: Whether the clone starts from the latest checkpoint of the trial.

        Returns:
            The id of the new trial.

        Raises:
            InputError: If there is no such trial or checkpoint, the changes lead out of the search space, or no process
                works on the run.
            EnvironmentFailure: If the search does not answer.
        """
        return self._command(
            "clone", {"trial": trial, "changes": dict(changes or {}), "checkpoint": checkpoint}
        ).trials[0]

    def change_budget(self, **limits: float | str | None) -> None:
        """Sets new totals of the budget; limits that are not named stay.

        Args:
            **limits: ``trials``, ``epochs``, ``wall_clock`` (seconds or as ``2h``), ``gpu_hours``, ``cost``; a text
                with ``+`` adds to the present one, and None removes a limit.

        Raises:
            InputError: If a limit is wrong, or no process works on the run.
            EnvironmentFailure: If the search does not answer.
        """
        self._command("budget", limits)

    def narrow_space(self, search_space: Mapping[str, Any]) -> None:
        """Lets later suggestions come from a narrower space; a new searcher learns from the trials that lie in it.

        Args:
            search_space: The parameters that change, in the notation of an experiment file; the others stay.

        Raises:
            InputError: If the space is not within the present one, the search cannot continue in another one, or no
                process works on the run.
            EnvironmentFailure: If the search does not answer.
        """
        self._command("space", {"search_space": dict(search_space)})

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
