"""Virtual trials with known curves, driven through a scheduler as a run or a simulator would drive it."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tuner.schedulers.base import Decision, Exploit, Resume, Scheduler, Stop
from tuner.spec.configuration import Configuration

Curve = Callable[[float, int, Configuration], float]
"""(state of the trial before the step, step, configuration) -> its state after it, which is the value it reports."""

Action = Literal["start", "continue", "pause", "stop", "exploit", "resume", "drop", "fail", "return", "close"]


class Event(NamedTuple):
    """What happened, in order."""

    action: Action
    trial: str
    step: int
    value: float


@dataclass
class VirtualTrial:
    configuration: Configuration
    last: int
    """The step after which its function returns."""
    fails_at: int | None
    dies_at: int | None
    step: int = 0
    state: float = 0.0
    history: list[tuple[int, float]] = field(default_factory=lambda: [(0, 0.0)])
    """(step, state) so far: its checkpoints."""


@dataclass
class Driver:
    """``slots`` trials run at once; which of them reports next is drawn from ``rng``."""

    scheduler: Scheduler
    curve: Curve
    configurations: list[Configuration]
    slots: int
    last: int = 100
    fails: Mapping[int, int] = field(default_factory=dict)
    """Number of a trial -> the step at which it fails."""
    returns: Mapping[int, int] = field(default_factory=dict)
    """Number of a trial -> the step after which its function returns."""
    restarts: Mapping[int, int] = field(default_factory=dict)
    """Number of a trial -> the step at which its process dies, to continue from the checkpoint of two steps before."""
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    trials: dict[str, VirtualTrial] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    exploits: list[tuple[str, Exploit]] = field(default_factory=list)
    """(the trial that was replaced, by what)"""
    most_running: int = 0

    def run(self, reports: int | None = None) -> list[Event]:
        """Until nothing is left to do, or for so many ``reports``."""
        while reports is None or reports > 0:
            self.fill()
            self.most_running = max(self.most_running, len(self.running))
            if not self.running:
                for trial_id in list(self.paused):
                    self._end(trial_id, "close")
                break
            self._advance(self.rng.choice(self.running))
            reports = None if reports is None else reports - 1
        return self.events

    def copy(self) -> Driver:
        """As if the process had been restarted."""
        copied: Driver = pickle.loads(pickle.dumps(self))
        return copied

    def fill(self) -> None:
        while len(self.running) < self.slots:
            more = len(self.trials) < len(self.configurations)
            action = self.scheduler.next_action(more)
            if isinstance(action, Stop):
                assert action.trial_id in self.paused
                self._end(action.trial_id, "drop")
            elif isinstance(action, Resume):
                self.paused.remove(action.trial_id)
                self.running.append(action.trial_id)
                self._log("resume", action.trial_id)
            elif more:
                self._start()
            else:
                break

    def _start(self) -> None:
        number = len(self.trials)
        trial_id = f"t{number}"
        configuration = self.configurations[number]
        ends = self.returns.get(number, self.last), self.fails.get(number), self.restarts.get(number)
        self.trials[trial_id] = VirtualTrial(configuration, *ends)
        self.scheduler.add(trial_id, configuration)
        self.running.append(trial_id)
        self._log("start", trial_id)

    def _advance(self, trial_id: str) -> None:
        trial = self.trials[trial_id]
        if trial.step >= trial.last:
            return self._end(trial_id, "return")
        trial.step += 1
        trial.state = self.curve(trial.state, trial.step, trial.configuration)
        if trial.fails_at is not None and trial.step >= trial.fails_at:
            return self._end(trial_id, "fail")
        if trial.step == trial.dies_at:
            trial.dies_at = None
            trial.step, trial.state = trial.history[-2]
            return None
        trial.history.append((trial.step, trial.state))
        decision = self.scheduler.report(trial_id, trial.step, trial.state)
        match decision:
            case Decision.CONTINUE:
                self._log("continue", trial_id)
            case Decision.PAUSE:
                self.running.remove(trial_id)
                self.paused.append(trial_id)
                self._log("pause", trial_id)
            case Decision.STOP:
                self._end(trial_id, "stop")
            case Exploit(donor, configuration):
                self._log("exploit", trial_id)
                source = self.trials[donor]
                trial.step, trial.state, trial.configuration = source.step, source.state, configuration
                trial.history = list(source.history)
                self.exploits.append((trial_id, decision))
        return None

    def _end(self, trial_id: str, action: Action) -> None:
        self._log(action, trial_id)
        for group in (self.running, self.paused):
            if trial_id in group:
                group.remove(trial_id)
        self.scheduler.remove(trial_id)

    def _log(self, action: Action, trial_id: str) -> None:
        trial = self.trials[trial_id]
        self.events.append(Event(action, trial_id, trial.step, trial.state))


def of(events: list[Event], *actions: Action) -> list[Event]:
    return [event for event in events if event.action in actions]


def by_quality(state: float, step: int, configuration: Configuration) -> float:
    """The order of trials is the same at every step."""
    quality: Any = configuration["x"]
    return float(quality) * (1 - 0.5**step)


def negated(state: float, step: int, configuration: Configuration) -> float:
    """`by_quality`, where small values are good."""
    return -by_quality(-state, step, configuration)
