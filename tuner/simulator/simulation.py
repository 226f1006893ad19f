"""A search in virtual time: a discrete-event simulation of ``workers`` slots that run trials with known curves."""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tuner.errors import InputError
from tuner.plan.compatibility import simulation_problem
from tuner.schedulers.base import Decision, Exploit, Resume, SchedulerSpec
from tuner.schedulers.build import build_scheduler
from tuner.searchers.auto import Auto
from tuner.searchers.base import SearchSpec
from tuner.searchers.build import build_searcher
from tuner.simulator.curves import Curves
from tuner.spec.objective import Mode
from tuner.spec.problem import SearchProblem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNLIMITED = 1_000_000_000
"""`SearchProblem.trials` of a search that is limited by virtual time alone."""

What = Literal["start", "resume", "continue", "pause", "stop", "complete"]


@dataclass(frozen=True)
class Costs:
    """What a worker spends before a trial trains, in virtual seconds."""

    start: float = 0.0
    """Before a new trial: its process, its data, and the suggestion."""
    resume: float = 0.0
    """Before a paused trial continues: its process, its data and its checkpoint."""


FREE = Costs()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a trial."""

    time: float
    """Virtual seconds since the search began."""
    trial: str
    step: int
    """The fidelity that the trial has reached; 0 at its start."""
    value: float | None
    """What it reported there; None when it starts."""
    what: What
    """``start``, ``resume``, or what followed its report; ``complete``: it came to the end of its curve, and ``stop``
    again for one that the scheduler gave up while it was paused."""


@dataclass(frozen=True, eq=False)
class Trace:
    """What happened in one simulated search."""

    times: NDArray[np.float64]
    """Virtual seconds at which the incumbent improved, ascending."""
    incumbents: NDArray[np.float64]
    """The best value reported so far, at each of `times`."""
    trials: int
    """Configurations that were started."""
    reports: int
    finished_at: float
    """Virtual seconds at the end of the search."""
    wall_s: float
    """Real seconds that the simulation took."""
    decisions: list[Event]
    """All that happened, in order."""

    def incumbent_at(self, seconds: float) -> float | None:
        """The best value that had been reported at that virtual time; None before the first report."""
        reached = int(self.times.searchsorted(seconds, side="right"))
        return float(self.incumbents[reached - 1]) if reached else None


def simulate(
    search: SearchSpec,
    scheduler: SchedulerSpec,
    curves: Curves,
    mode: Mode,
    *,
    workers: int = 8,
    seed: int = 0,
    seconds: float | None = None,
    trials: int | None = None,
    costs: Costs = FREE,
) -> Trace:
    """Searches with the searcher and the scheduler that ``run`` would use, in virtual time.

    A trial reports each fidelity when the cumulative seconds of its curve say so, and ends with its curve; a resumed
    trial continues where it paused. Before either, its worker spends ``costs``. The search ends after ``trials``
    configurations, when none of them can continue, or at ``seconds`` of virtual time.

    Args:
        search: The searcher's options, such as ``tuner.searchers.Bohb(seed=0)``; its seed is not used.
        scheduler: The scheduler's options.
        curves: The learning curves: a `Table` of recorded ones, or a `tuner.simulator.CurveFunction`.
        mode: ``max`` or ``min``: whether large values are good.
        workers: Trials that run at once.
        seed: Of the searcher.
        seconds: The end, in virtual seconds; None: no such limit.
        trials: Number of configurations; None: no such limit.
        costs: What a worker spends before a trial starts or continues; by default nothing.

    Returns:
        What happened: the best value over time, the number of trials and reports, and every decision.

    Raises:
        InputError: Neither limit is given, or the scheduler cannot be simulated.

    Example:
        >>> import pandas
        >>> import tuner
        >>> from tuner.testing import space_of
        >>> frame = pandas.DataFrame({"lr": [1, 1, 2, 2], "epoch": [1, 2, 1, 2], "loss": [3.0, 2.0, 4.0, 1.0],
        ...                           "seconds": [1.0, 2.0, 1.0, 2.0]})
        >>> table = tuner.Table.of(frame, space_of({"lr": {"choice": [1, 2]}}), metric="loss", fidelity="epoch")
        >>> trace = tuner.simulate(tuner.searchers.Grid(), tuner.schedulers.Fifo(), table, "min", workers=1, trials=2)
        >>> trace.reports, float(trace.incumbents[-1]), trace.finished_at
        (4, 1.0, 4.0)
    """
    problem = simulation_problem(scheduler)
    if problem:
        raise InputError(f"scheduler.kind: {problem}")
    if workers < 1 or (seconds is None and trials is None):
        raise InputError("a simulation needs at least one worker, and a limit: seconds, trials or both")
    max_t = scheduler.fidelity[1] if scheduler.fidelity else None
    task = SearchProblem(curves.space, (mode,), UNLIMITED if trials is None else trials, max_t, seed)
    if isinstance(search, Auto):
        search, _ = search.chosen(curves.space, 1, lambda one: scheduler.incompatibility(one.kind))
    begun = time.perf_counter()
    simulation = _Simulation(search, scheduler, curves, task, workers, costs)
    finished_at = simulation.run(float("inf") if seconds is None else seconds)
    return simulation.trace(finished_at, time.perf_counter() - begun)


@dataclass(slots=True)
class _Trial:
    """A trial that has not ended."""

    values: NDArray[np.float64]
    seconds: NDArray[np.float64]
    """Cumulative."""
    reached: int = 0
    """How many fidelities it has reported."""
    offset: float = 0.0
    """Virtual time minus the trial's own running time, since it last started or resumed."""


@dataclass
class _Simulation:
    search: SearchSpec
    scheduler_spec: SchedulerSpec
    curves: Curves
    task: SearchProblem
    free: int
    """Workers without a trial."""
    costs: Costs
    now: float = 0.0
    started: int = 0
    reports: int = 0
    events: list[Event] = field(default_factory=list)
    incumbents: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._searcher = build_searcher(self.search, self.task)
        self._scheduler = build_scheduler(self.scheduler_spec, self.task)
        self._more = True
        self._trials: dict[str, _Trial] = {}
        self._running: list[tuple[float, int, str]] = []
        """A heap of (virtual time of the next report, order of scheduling, trial)."""
        self._scheduled = 0

    def run(self, until: float) -> float:
        """Lets virtual time go by, up to ``until``; the time at which the search ended."""
        self._fill()
        while self._running and self._running[0][0] <= until:
            self.now, _, trial_id = heapq.heappop(self._running)
            self._report(trial_id)
            self._fill()
        if self._running:
            return until
        for trial_id in list(self._trials):  # paused, and never to be resumed
            self._end(trial_id, "stop")
        return self.now

    def _fill(self) -> None:
        """Gives the free workers something to do, as long as there is something."""
        while self.free:
            action = self._scheduler.next_action(self._more)
            if isinstance(action, Resume):
                self._resume(action.trial_id)
            elif action is not None:
                self._end(action.trial_id, "stop")
            elif not self._more:
                return
            else:
                self._start()

    def _start(self) -> None:
        trial_id = f"{self.started + 1:05}"
        configuration = self._searcher.suggest(trial_id)
        if configuration is None:
            self._more = False
            return
        self.started += 1
        self._more = self.started < self.task.trials
        self._trials[trial_id] = _Trial(*self.curves.learning_curve(configuration))
        self._scheduler.add(trial_id, configuration)
        self._log(trial_id, "start")
        self._go(trial_id, self.costs.start)

    def _resume(self, trial_id: str) -> None:
        self._log(trial_id, "resume")
        self._searcher.on_resume(trial_id)
        if self._trials[trial_id].reached == len(self.curves.fidelities):
            self._end(trial_id, "complete")
        else:
            self._go(trial_id, self.costs.resume)

    def _go(self, trial_id: str, cost: float) -> None:
        """The trial takes a worker, and trains after ``cost`` seconds."""
        trial = self._trials[trial_id]
        spent = trial.seconds[trial.reached - 1] if trial.reached else 0.0
        trial.offset = self.now + cost - float(spent)
        self.free -= 1
        self._schedule(trial_id, trial)

    def _schedule(self, trial_id: str, trial: _Trial) -> None:
        self._scheduled += 1
        due = trial.offset + float(trial.seconds[trial.reached])
        heapq.heappush(self._running, (due, self._scheduled, trial_id))

    def _report(self, trial_id: str) -> None:
        trial = self._trials[trial_id]
        step, value = self.curves.fidelities[trial.reached], float(trial.values[trial.reached])
        trial.reached += 1
        self.reports += 1
        if not self.incumbents or self.task.sign * value > self.task.sign * self.incumbents[-1][1]:
            self.incumbents.append((self.now, value))
        seconds = float(trial.seconds[trial.reached - 1])
        self._searcher.on_seconds(trial_id, seconds)
        self._searcher.on_report(trial_id, step, value)
        self._scheduler.on_seconds(trial_id, seconds)
        decision = self._scheduler.report(trial_id, step, value)
        assert not isinstance(decision, Exploit), "its specification says that it cannot be simulated"
        if decision is Decision.CONTINUE and trial.reached < len(self.curves.fidelities):
            self._log(trial_id, "continue")
            self._schedule(trial_id, trial)
            return
        self.free += 1
        if decision is Decision.PAUSE:
            self._log(trial_id, "pause")
            self._searcher.on_pause(trial_id, step, (value,))
        else:
            self._end(trial_id, "stop" if decision is Decision.STOP else "complete")

    def _end(self, trial_id: str, what: What) -> None:
        self._log(trial_id, what)
        step, value = self._last(self._trials.pop(trial_id))
        assert value is not None, "only a trial that has reported can end"
        self._scheduler.remove(trial_id)
        self._searcher.on_end(trial_id, step, (value,))

    def _last(self, trial: _Trial) -> tuple[int, float | None]:
        if not trial.reached:
            return 0, None
        return self.curves.fidelities[trial.reached - 1], float(trial.values[trial.reached - 1])

    def _log(self, trial_id: str, what: What) -> None:
        self.events.append(Event(self.now, trial_id, *self._last(self._trials[trial_id]), what))

    def trace(self, finished_at: float, wall_s: float) -> Trace:
        """What happened up to now."""
        import numpy as np

        times, incumbents = np.array(self.incumbents, dtype=np.float64).reshape(-1, 2).T
        return Trace(times, incumbents, self.started, self.reports, finished_at, wall_s, self.events)
