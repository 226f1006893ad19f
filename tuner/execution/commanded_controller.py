"""Ray's control loop, which carries out the commands that other processes leave in the run folder.

A command is checked, journalled together with what comes of it, and only then acted upon. So a search that is killed
at any point finds in its journal what holds (`tuner.search.orders.Orders`), and carries nothing out twice.

A trial that has to give its slot back waits as one that Ray has paused, in the order in which it gave it back. One that
runs does so at its next report with a checkpoint, so that it loses nothing. One that reports no checkpoints continues.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from ray.tune.experiment import Trial as RayTrial
from ray.tune.schedulers import TrialScheduler

from tuner.errors import InputError
from tuner.execution.retrying_controller import RetryingController
from tuner.runs.commands import Command, waiting_commands
from tuner.runs.named_trial import find_trial
from tuner.runs.trial import Trial
from tuner.search.control import SearchControl
from tuner.search.orders import OfTrial, arguments_of
from tuner.spec.model import Model

LOOK_EVERY_S = {True: 1.0, False: 5.0}
"""How often commands are looked for: in a local folder, and in an object store."""

IDLE_S = 0.1
"""How long a turn of the loop takes in which nothing can happen but a command."""


class CommandedController(RetryingController):
    """One search's control loop, as far as people change what it does."""

    control: SearchControl

    def __init__(self, **options: Any) -> None:
        self._by_id: dict[str, RayTrial] = {}
        self._aside: deque[RayTrial] = deque()
        """The trials that wait for a slot and get the next ones: they gave theirs back, or were added by people."""
        self._next_command_look = 0.0
        self._unreadable: set[str] = set()
        super().__init__(**options)

    @property
    def slots(self) -> int:
        """Trials that the machines could run at once."""
        raise NotImplementedError

    @property
    def allowed(self) -> int:
        """Trials that run at once at most."""
        return self.recorder.state.orders.allowed(self.slots)

    def on_step_begin(self) -> None:
        super().on_step_begin()
        if not self.control.interrupted:
            self._look_for_commands()
            self._end_stopped()
            self._keep_to_limit()

    def on_step_end(self) -> None:
        super().on_step_end()
        if not self.allowed and not self._running_trials and not self._actor_manager.num_live_actors:
            self.control.stand_still()
            time.sleep(IDLE_S)

    # --- commands ---

    def _look_for_commands(self) -> None:
        folder, now = self.recorder.results.folder, time.monotonic()
        if now < self._next_command_look:
            return
        self._next_command_look = now + LOOK_EVERY_S[folder.is_local]
        found: list[Command] = []

        def look() -> None:
            commands, unreadable = waiting_commands(folder)
            found[:] = commands
            for name in set(unreadable) - self._unreadable:
                self.recorder.notify(f"commands/{name} is no command that can be read: it is passed over")
            self._unreadable.update(unreadable)

        self.recorder.storing.attempt(look)
        for command in found:
            self._answer(command)

    def _answer(self, command: Command) -> None:
        """Carries a command out, or refuses it; one that was answered before a kill is only taken away."""
        if not self.recorder.was_answered(command):
            try:
                self._carry_out(command, arguments_of(command.do, command.arguments))
            except InputError as error:
                self.recorder.commanded(command, done=False, reason=" ".join(str(error).split()))
        self.recorder.take_away(command)

    def _carry_out(self, command: Command, arguments: Model) -> None:
        """Raises InputError if the command makes no sense now."""
        match command.do:
            case "stop-trial":
                assert isinstance(arguments, OfTrial)
                self._done(command, [self._open_trial(arguments.trial)])
            case "pause" | "continue" | "slots":
                self._done(command)

    def _done(self, command: Command, trials: Sequence[Trial] = ()) -> None:
        self.recorder.commanded(command, done=True, trials=[trial.id for trial in trials])

    def _open_trial(self, name: str) -> Trial:
        """The trial of that id or number. Raises InputError if there is none that has not ended."""
        trial = find_trial(self.recorder.results, name)
        if trial.has_ended:
            raise InputError(
                f"trial {trial.label} has ended: {trial.status}{f' ({trial.reason})' * bool(trial.reason)}"
            )
        return trial

    # --- what follows from the orders that hold ---

    def _end_stopped(self) -> None:
        """Ends those of the trials that people stop that do not run. The others end at their next report."""
        for trial_id in list(self.recorder.state.orders.stopped):
            trial = self._by_id.get(trial_id)
            if trial and trial.status in (RayTrial.PENDING, RayTrial.PAUSED) and self._take_back(trial):
                self._held.pop(trial, None)
                self.stop_trial(trial)

    def _keep_to_limit(self) -> None:
        """Lets trials give their slots back that are over the limit and do not run yet, the latest first."""
        if self.allowed >= self.slots:
            return
        if len(self._running_trials) + self._idle > self.allowed:
            self._drop_idle()
        over = len(self._running_trials) + len(self._pending_trials) - self.allowed
        for trial in sorted(self._pending_trials, key=self._number_of, reverse=True):
            if over > 0 and self._take_back(trial):
                self._aside.appendleft(trial)
                over -= 1

    @property
    def _idle(self) -> int:
        """Processes that are kept for the next trials."""
        return sum(map(len, self._actor_cache._cached_objects.values()))

    def _number_of(self, trial: RayTrial) -> int:
        return self.recorder.results.trial(trial.trial_id).number

    def _is_over_limit(self) -> bool:
        """Whether a running trial has to give its slot back."""
        return len(self._running_trials) > self.allowed

    def _next_aside(self) -> bool:
        """Gives one free slot to the trial that waits for longest; False if none waits."""
        while self._aside:
            trial = self._aside.popleft()
            if trial.status == RayTrial.PAUSED and trial not in self._held:
                self._set_trial_status(trial, RayTrial.PENDING)
                return True
        return False

    def _execute_action(self, trial: RayTrial, decision: str, after_save: bool = False) -> None:
        orders = self.recorder.state.orders
        if decision in (TrialScheduler.CONTINUE, TrialScheduler.PAUSE) and trial.trial_id in orders.stopped:
            decision = TrialScheduler.STOP
        elif decision == TrialScheduler.CONTINUE and after_save and self._is_over_limit():
            decision = TrialScheduler.PAUSE
            self._aside.append(trial)
        super()._execute_action(trial, decision, after_save)

    def _maybe_cache_trial_actor(self, trial: RayTrial) -> bool:
        """No process is kept idle beyond the limit: its resources are for others."""
        if self.allowed < self.slots and len(self._running_trials) + self._idle >= self.allowed:
            return False
        return bool(super()._maybe_cache_trial_actor(trial))

    def _maybe_add_actors(self) -> None:
        """One of Ray's own schedulers would start a paused trial whenever it is asked."""
        if len(self._running_trials) < self.allowed:
            super()._maybe_add_actors()
