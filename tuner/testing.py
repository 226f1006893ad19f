"""Checks of third parties' searches and schedulers, for their tests: plain functions that raise AssertionError.

They drive what a specification builds without Ray, in milliseconds, as a search and a simulator would.

Example:
    >>> from tuner.schedulers import Asha
    >>> from tuner.searchers import Random
    >>> check_searcher(Random())
    >>> check_scheduler(Asha(max_t=9))
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random as Rng
from typing import Any, TypeVar

from tuner.schedulers.base import Decision, Exploit, Resume, Scheduler, SchedulerSpec, Stop
from tuner.schedulers.build import build_scheduler
from tuner.searchers.base import Searcher, SearchSpec
from tuner.searchers.build import build_searcher
from tuner.spec.algorithm import AlgorithmSpec
from tuner.spec.configuration import Configuration
from tuner.spec.document import Document
from tuner.spec.objective import Mode
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Space, read_space

MIXED = {
    "optimizer": {"choice": ["sgd", "adam"]},
    "lr": {"loguniform": [1e-4, 1e-1]},
    "depth": {"randint": [1, 9]},
    "momentum": {"uniform": [0.8, 0.99], "when": {"optimizer": "sgd"}},
    "fixed": {"nested": 3},
}
"""A search space with a condition."""

PLAIN = {name: domain for name, domain in MIXED.items() if name != "momentum"}
"""The same without."""

DISCRETE = {name: MIXED[name] for name in ("optimizer", "depth")}
"""What a search that tries everything can do."""


def space_of(written: dict[str, Any]) -> Space:
    """A search space from the mapping that an experiment file holds.

    Args:
        written: The parameters by name, as in an experiment file.

    Returns:
        The space.

    Raises:
        AssertionError: The mapping is not a search space; it holds every problem.

    Example:
        >>> from tuner.testing import space_of
        >>> [parameter.name for parameter in space_of({"lr": {"uniform": [0, 1]}}).parameters]
        ['lr']
    """
    problems: list[Any] = []
    space = read_space(Document(written, "space"), (), problems)
    assert space is not None, f"this is not a search space: {problems}"
    return space


def check_searcher(spec: SearchSpec, spaces: Sequence[Space] = (), trials: int = 12) -> None:
    """Checks that a search keeps the contract of `tuner.searchers.Searcher`.

    In each space:

    - every suggestion is a point of it, made of plain values;
    - the same seed gives the same sequence;
    - a searcher that was pickled in the middle continues with the same sequence;
    - trials may fail, end early, report huge values, be unknown, or come from elsewhere.

    Args:
        spec: The search with its options.
        spaces: The spaces to search. By default `PLAIN`, `MIXED` and `DISCRETE`, each if ``spec`` accepts it
            (`validate_space`).
        trials: How many configurations are asked for. Choose more if a model begins to suggest later.

    Raises:
        AssertionError: With what is wrong.

    Example:
        >>> from tuner.searchers import Optuna
        >>> check_searcher(Optuna(n_startup_trials=4))
    """
    _check_pickled(spec)
    chosen = list(spaces) or [
        space for space in map(space_of, (PLAIN, MIXED, DISCRETE)) if not spec.validate_space(space)
    ]
    assert chosen, f"{_name(spec)}: validate_space refuses all default spaces: pass spaces that it can search"
    for space in chosen:
        assert spec.validate_space(space) == [], f"{_name(spec)} refuses a space that it is checked with"
        _check_sequence(spec, space, trials)
        _check_restored(spec, space, trials)
        _check_news(spec, space)


def check_scheduler(spec: SchedulerSpec, trials: int = 30, slots: int = 4, steps: int = 30) -> None:
    """Checks that a scheduler keeps the contract of `tuner.schedulers.Scheduler`.

    Virtual trials run to their end under it, and some of them fail. The scheduler

    - resumes and stops only trials that are paused;
    - exploits only trials that it knows;
    - leaves no free slot while a trial could run;
    - decides only if `decides_at` is true;
    - decides the same again, and continues the same if it is pickled in the middle.

    Args:
        spec: The scheduler with its options.
        trials: How many trials start.
        slots: How many run at once.
        steps: How many reports a trial makes if it is not stopped and ``spec`` has no ``max_t``.

    Raises:
        AssertionError: With what is wrong.

    Example:
        >>> from tuner.schedulers import HyperBand
        >>> check_scheduler(HyperBand(max_t=9), trials=40)
    """
    _check_pickled(spec)
    rungs = spec.rungs()
    assert list(rungs) == sorted(set(rungs)), f"{_name(spec)}.rungs must ascend, not {rungs}"
    if rungs:
        assert spec.fidelity, f"{_name(spec)} has rungs, and so must have a fidelity"
        assert rungs[-1] == spec.fidelity[1], f"{_name(spec)}: the last rung {rungs[-1]} must be max_t"
    assert len(spec.expected_at_rungs(trials)) == len(rungs), f"{_name(spec)}.expected_at_rungs: one number a rung"
    steps = spec.fidelity[1] if spec.fidelity else steps
    modes: tuple[Mode, ...] = ("min", "max")
    for mode in modes:
        whole = _Trials(spec, trials, slots, steps, mode)
        whole.run()
        again = _Trials(spec, trials, slots, steps, mode)
        again.run(trials)
        restored: _Trials = _pickled(again)
        again.run()
        assert again.log == whole.log, f"{_name(spec)} decides differently for the same seed and the same reports"
        restored.run()
        assert restored.log == whole.log, f"{_name(spec)} decides differently after it was pickled"


_Any = TypeVar("_Any")


def _pickled(value: _Any) -> _Any:
    """A copy, by the pickler that writes a search's snapshot."""
    from ray import cloudpickle

    copied: _Any = cloudpickle.loads(cloudpickle.dumps(value))
    return copied


def _name(spec: AlgorithmSpec) -> str:
    return type(spec).__qualname__


def _check_pickled(spec: AlgorithmSpec) -> None:
    assert _pickled(spec) == spec, f"{_name(spec)} must be the same when it is unpickled"


def _task(space: Space, seed: int = 0, mode: Mode = "min", max_t: int | None = 3) -> SearchProblem:
    return SearchProblem(space, (mode,), trials=20, max_t=max_t, seed=seed)


def _plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and _plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _searched(searcher: Searcher, trials: int, start: int = 0) -> list[Configuration]:
    """One trial at a time; every fifth fails, and every third is stopped early."""
    suggested: list[Configuration] = []
    for number in range(start, start + trials):
        trial_id = f"t{number}"
        configuration = searcher.suggest(trial_id)
        if configuration is None:
            break
        suggested.append(json.loads(json.dumps(configuration)) if _plain(configuration) else configuration)
        if number % 5 == 4:
            searcher.on_end(trial_id, 0, None)
            continue
        last = 2 if number % 3 == 2 else 3
        value = float(sum(len(key) * len(str(item)) for key, item in configuration.items()))
        for step in range(1, last + 1):
            searcher.on_seconds(trial_id, 0.5 * step)
            searcher.on_report(trial_id, step, value / step)
        searcher.on_end(trial_id, last, (value / last,))
    return suggested


def _check_sequence(spec: SearchSpec, space: Space, trials: int) -> None:
    suggested = _searched(build_searcher(spec, _task(space)), trials)
    assert suggested, f"{_name(spec)} suggested nothing"
    for configuration in suggested:
        wrong = space.violations(configuration)
        assert not wrong, f"{_name(spec)} suggested {configuration}, which is not a point of the space: {wrong}"
        assert _plain(configuration), f"{_name(spec)} suggested {configuration}: its values must be plain Python values"
    again = _searched(build_searcher(spec, _task(space)), trials)
    assert again == suggested, f"{_name(spec)}: the same seed gave two sequences: draw from task.seed alone"


def _check_restored(spec: SearchSpec, space: Space, trials: int) -> None:
    searcher, half = build_searcher(spec, _task(space)), trials // 2
    _searched(searcher, half)
    searcher.suggest("pending")
    searcher.on_report("pending", 1, 0.5)
    restored = _pickled(searcher)
    continued = []
    for one in (searcher, restored):
        one.on_end("pending", 3, (0.25,))
        continued.append(_searched(one, trials - half, start=half))
    assert continued[0] == continued[1], f"{_name(spec)}: a searcher that was pickled continues differently"


def _check_news(spec: SearchSpec, space: Space) -> None:
    """Whatever becomes of trials, the searcher continues."""
    searcher = build_searcher(spec, _task(space))
    known = [trial_id for trial_id in map(str, range(6)) if searcher.suggest(trial_id) is not None]
    if len(known) < 6:  # a small space
        return
    searcher.register("adopted", _foreign(space))
    searcher.on_report("adopted", 1, 0.5)
    searcher.on_end("adopted", 3, (0.1,))
    searcher.on_end("0", 0, None)
    searcher.on_end("1", 1, (0.5,))
    searcher.on_report("2", 1, 1e308)
    searcher.on_report("2", 2, -1e308)
    searcher.on_end("2", 2, (-1e308,))
    searcher.on_report("3", 1, 0.5)
    searcher.on_pause("3", 1, (0.5,))
    searcher.on_resume("3")
    searcher.on_end("never suggested", 3, (0.1,))
    for trial_id in ("3", "4", "5"):
        searcher.on_end(trial_id, 3, (0.5,))
    configuration = searcher.suggest("next")
    assert configuration is None or space.contains(configuration), f"{_name(spec)} left the space: {configuration}"


def _foreign(space: Space) -> Configuration:
    """A point that the searcher did not suggest."""
    from numpy.random import default_rng

    return space.sample(default_rng(7))


class _Trials:
    """Virtual trials under a scheduler; which of them reports next is drawn with a fixed seed."""

    def __init__(self, spec: SchedulerSpec, trials: int, slots: int, steps: int, mode: Mode) -> None:
        from numpy.random import default_rng

        space = space_of({"x": {"uniform": [0, 1]}, "y": {"choice": ["a", "b"]}})
        refused = spec.validate_space(space)
        assert not refused, f"{_name(spec)} refuses the space that it is checked with: {refused}"
        draws = default_rng(1)
        self.spec, self.slots, self.steps, self.mode = spec, slots, steps, mode
        self.waiting = [(f"t{number}", space.sample(draws)) for number in range(trials)]
        max_t = spec.fidelity[1] if spec.fidelity else None
        task = SearchProblem(space, (mode,), trials, max_t, seed=0)
        self.scheduler: Scheduler = build_scheduler(spec, task)
        self.configurations: dict[str, Configuration] = {}
        self.at: dict[str, int] = {}
        self.running: list[str] = []
        self.paused: list[str] = []
        self.rng = Rng(0)
        self.log: list[tuple[str, str, int]] = []

    def run(self, reports: int | None = None) -> None:
        """Until all have ended, or for so many ``reports``."""
        left = 100 * self.steps * (len(self.waiting) + len(self.at))
        while reports is None or reports > 0:
            left -= 1
            assert left > 0, f"{_name(self.spec)}: the trials do not come to an end"
            self._fill()
            if not self.running:
                for trial_id in list(self.paused):
                    self._end(trial_id, "closed")
                return
            self._report(self.rng.choice(self.running))
            reports = None if reports is None else reports - 1

    def _fill(self) -> None:
        while len(self.running) < self.slots:
            action = self.scheduler.next_action(bool(self.waiting))
            if action is not None:
                known = action.trial_id in self.paused
                assert known, f"{_name(self.spec)}: next answered {action}, but that trial is not paused"
            if isinstance(action, Stop):
                self._end(action.trial_id, "dropped")
            elif isinstance(action, Resume):
                self.paused.remove(action.trial_id)
                self.running.append(action.trial_id)
                self.log.append(("resumed", action.trial_id, self.at[action.trial_id]))
            elif self.waiting:
                trial_id, configuration = self.waiting.pop(0)
                self.configurations[trial_id], self.at[trial_id] = configuration, 0
                self.running.append(trial_id)
                self.scheduler.add(trial_id, dict(configuration))
            else:
                return

    def _report(self, trial_id: str) -> None:
        number, step = int(trial_id[1:]), self.at[trial_id] + 1
        if step > self.steps:
            return self._end(trial_id, "returned")
        if number % 7 == 3 and step == 2:
            return self._end(trial_id, "failed")
        self.at[trial_id] = step
        quality = float(self.configurations[trial_id]["x"]) * (1 - 0.5**step)
        self.scheduler.on_seconds(trial_id, 0.5 * step)
        decision = self.scheduler.report(trial_id, step, -quality if self.mode == "min" else quality)
        if decision is not Decision.CONTINUE:
            decides = self.spec.decides_at(step - 1, step)
            assert decides, f"{_name(self.spec)} answered {decision} at step {step}, where decides_at is false"
        match decision:
            case Decision.PAUSE:
                self.running.remove(trial_id)
                self.paused.append(trial_id)
                self.log.append(("paused", trial_id, step))
            case Decision.STOP:
                self._end(trial_id, "stopped")
            case Exploit(donor, configuration):
                assert donor in self.at, f"{_name(self.spec)} exploits {donor!r}, which is not a trial"
                self.configurations[trial_id] = configuration
                if self.spec.fidelity and self.spec.fidelity[0] != "training_iteration":  # which counts its own reports
                    self.at[trial_id] = self.at[donor]
                self.log.append((f"exploited {donor}", trial_id, step))
        return None

    def _end(self, trial_id: str, how: str) -> None:
        self.log.append((how, trial_id, self.at[trial_id]))
        for group in (self.running, self.paused):
            if trial_id in group:
                group.remove(trial_id)
        self.scheduler.remove(trial_id)
