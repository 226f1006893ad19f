"""Ray's control loop, which carries out the commands that other processes leave in the run folder.

A command is checked, journalled together with what comes of it, and only then acted upon. So a search that is killed
at any point finds in its journal what holds (`tuner.search.orders.Orders`), and carries nothing out twice.

A trial that has to give its slot back waits as one that Ray has paused, in the order in which it gave it back. One that
runs does so at its next report with a checkpoint, so that it loses nothing. One that reports no checkpoints continues.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ray.tune.experiment import Trial as RayTrial
from ray.tune.schedulers import TrialScheduler

from tuner.errors import InputError
from tuner.execution.budget import BudgetStopper
from tuner.execution.restore_trials import rays_trial, start_from_copy
from tuner.execution.retrying_controller import RetryingController
from tuner.execution.slots import SlotTracker
from tuner.experiment.spec import Budget
from tuner.plan.plan import Plan
from tuner.runs.commands import Command, trial_of, waiting_commands
from tuner.runs.named_trial import find_trial
from tuner.runs.provenance import resolved_spec, write_experiment
from tuner.runs.results import RAY
from tuner.runs.trial import Origin, Report, Segment, Trial
from tuner.search.changes import added_configuration, changed_budget, changed_configuration
from tuner.search.checkpoint_retention import copy_name
from tuner.search.control import SearchControl
from tuner.search.narrowing import narrowed_plan
from tuner.search.new_state import new_state
from tuner.search.orders import Addition, Clone, NewBudget, NewSpace, OfTrial, arguments_of
from tuner.search.recovery import with_new_searcher
from tuner.spec.configuration import Configuration
from tuner.spec.model import Model

LOOK_EVERY_S = {True: 1.0, False: 5.0}
"""How often commands are looked for: in a local folder, and in an object store."""

IDLE_S = 0.1
"""How long a turn of the loop takes in which nothing can happen but a command."""


class CommandedController(RetryingController):
    """One search's control loop: the part that people change while it runs."""

    control: SearchControl
    budget: BudgetStopper
    _room: SlotTracker

    def __init__(self, **options: Any) -> None:
        self._by_id: dict[str, RayTrial] = {}
        self._aside: deque[RayTrial] = deque()
        """The trials that wait for a slot and get the next ones: they gave theirs back, or were added by people."""
        self._origins: dict[str, Origin] = {}
        """Of each trial that people add, until it is journalled."""
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
                self.recorder.notify(f"commands/{name} cannot be read as a command: it is passed over")
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
        match arguments:
            case Clone() | Addition() if self.recorder.results.get(trial_of(command)):  # killed before it was answered
                self._done(command, [trial_of(command)])
            case Clone():
                self._clone(command, arguments)
            case Addition():
                space = self.plan.spec.search_space
                self._add(command, added_configuration(space, arguments.config), Origin(command.by))
            case OfTrial() if command.do == "keep-trial":
                self._check_keeps()
                self._done(command, [self._open_trial(arguments.trial).id])
            case OfTrial():
                self._done(command, [self._open_trial(arguments.trial).id])
            case NewBudget():
                self._change_budget(command, changed_budget(self.recorder.results.section("budget"), arguments))
            case NewSpace():
                self._narrow(command, narrowed_plan(self.plan, self.recorder.results, arguments.search_space))
            case _:
                self._done(command)

    def _done(self, command: Command, trials: Sequence[str] = (), changed: Mapping[str, Any] | None = None) -> None:
        self.recorder.commanded(command, done=True, trials=trials, changed=changed)

    def _check_keeps(self) -> None:
        """Raises InputError if no trial can be kept from being stopped."""
        scheduler = self.plan.spec.scheduler
        if self.recorder.state.scheduler is None:
            raise InputError("a scheduler of Ray's own decides which trials end")
        if scheduler.changes_configurations:
            raise InputError(f"scheduler {scheduler.kind} stops no trial, and lets it continue from better ones")

    def _change_budget(self, command: Command, budget: Budget) -> None:
        self._done(command, changed={"budget": budget.model_dump(mode="json", exclude_none=True)})
        self.budget.renew(budget)
        trials = budget.trials or self.plan.trials
        spec = self.plan.spec.model_copy(update={"budget": budget})
        self.plan = replace(self.plan, experiment=replace(self.plan.experiment, spec=spec), trials=trials)
        self._search_alg._total_samples = trials
        self._count_trials()

    def _narrow(self, command: Command, plan: Plan) -> None:
        """Lets a new searcher learn from the trials so far. It is made before the event, as it may fail."""
        results = self.recorder.results
        self.recorder.sync()
        renewed = with_new_searcher(results, new_state(plan, (), len(results.trials)))
        spec = resolved_spec(plan, results.section("params"))
        self._done(command, changed={"search_space": spec["search_space"]})
        self.recorder.state.renew(renewed)
        self.plan = plan
        self._search_alg._finished = False
        self.recorder.storing.later(functools.partial(write_experiment, results))

    def _count_trials(self) -> None:
        """Takes account of other numbers of trials: of the budget, and of people's own."""
        results = self.recorder.results
        results.provenance["trials"] = total = self.plan.trials + results.added
        self._room.renew(replace(self.plan, trials=total))
        self.recorder.storing.later(functools.partial(write_experiment, results))

    # --- trials that people add ---

    def _add(self, command: Command, config: Configuration, origin: Origin) -> None:
        """Lets a trial wait for the next free slot. Its id is the command's, so that none is made twice."""
        results, trial_id = self.recorder.results, trial_of(command)
        self._origins[trial_id] = origin
        trial = rays_trial(trial_id, len(results.trials) + 1, config, None, self._search_alg)
        self.add_trial(trial)
        ours = results.trial(trial_id)
        if ours.segments:
            copied = results.folder / RAY / trial_id / copy_name(ours.segments[0])
            start_from_copy(trial, ours, copied.path, results)
        self._set_trial_status(trial, RayTrial.PAUSED)
        self._aside.append(trial)
        self._done(command, [trial_id])
        self._count_trials()

    def _clone(self, command: Command, order: Clone) -> None:
        parent = find_trial(self.recorder.results, order.trial)
        base = parent.segments[-1].config if parent.segments else parent.config
        config = changed_configuration(self.plan.spec.search_space, base, order.changes)
        origin = Origin(command.by, parent.id)
        if order.checkpoint:
            report = self._latest_checkpoint(parent)
            origin = replace(
                origin, step=report.step, begins_at=self.recorder.state.begins_at(report.step, report.metrics)
            )
            path = (self.recorder.results.folder / str(report.checkpoint)).path
            self.recorder.copied(trial_of(command), Segment(0, config, parent.id, report.step), path)
        self._add(command, config, origin)

    def _latest_checkpoint(self, parent: Trial) -> Report:
        """The report of the checkpoint that a clone starts from. Raises InputError if there is none."""
        recorder = self.recorder
        held = recorder.retention.resumable(parent)
        if not held:
            raise InputError(f"trial {parent.label} has no checkpoint that is kept: clone it without, or later")
        report, state = held[-1], recorder.state
        if problem := recorder.damage_of(recorder.results.folder / str(report.checkpoint)):
            raise InputError(f"trial {parent.label}: its checkpoint {report.checkpoint}: {problem}")
        if state.ends_at is not None and state.fidelity(report.step, report.metrics) >= state.ends_at:
            raise InputError(f"trial {parent.label} has reached max_t {state.ends_at}: no training is left to clone")
        return report

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
