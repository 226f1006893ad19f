"""What a search has learned: its searcher and its scheduler, driven the same way by a live search and by a journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.runs.events import Event
from tuner.schedulers.audited import Audited
from tuner.schedulers.base import Decision, Exploit, Resume, Scheduler, Stop
from tuner.search.orders import Orders
from tuner.searchers.base import PastTrial, Searcher
from tuner.spec.configuration import Configuration
from tuner.spec.objective import Objective, compared, have_weights
from tuner.spec.outcome_constraints import OutcomeConstraint, metrics_read, ranked_values
from tuner.spec.space import Space

Reading = tuple[int, tuple[float, ...]]
"""(fidelity, values) of a report: those of the objectives, then those of the outcome constraints."""


class _Nobody(Searcher):
    """Learns nothing of a trial."""

    def suggest(self, trial_id: str) -> Configuration | None:
        return None


@dataclass
class SearchState:
    """Searcher and scheduler. Pickled in one piece, so that its parts agree when the search is resumed.

    Every method is one event of the journal, and all that the two learn goes through them: a search whose journal is
    replayed into a new state continues as if nothing had happened.
    """

    searcher: Searcher
    scheduler: Scheduler | None
    """None where Ray's own scheduler decides."""
    space: Space
    """From which the searcher suggests."""
    objectives: tuple[Objective, ...]
    step_name: str
    """The reported number that counts a trial's progress."""
    paused: set[str] = field(default_factory=set)
    """Trials that wait at their rung."""
    _seen: dict[str, int] = field(default_factory=dict)
    """Of each trial that has not ended: the number of its latest report."""
    _last: dict[str, Reading] = field(default_factory=dict)
    """Of each trial that has not ended: its latest reading."""
    stopping: set[str] = field(default_factory=set)
    """Trials that the scheduler has ended, and that have not ended yet."""
    scalarised: bool = False
    """Whether the searcher learns from the number that schedulers compare, and not from each objective."""
    constraints: tuple[OutcomeConstraint, ...] = ()
    """Limits on what trials report."""
    models_margins: bool = False
    """Whether the searcher learns of these limits by itself, and so of values as they are."""
    more: bool = True
    """Whether new trials could come when the scheduler was asked last."""
    outside: dict[str, str] = field(default_factory=dict)
    """Of each trial that the searcher does not know: why it is outside of the space."""
    ends_at: int | None = None
    """The fidelity at which the scheduler ends every trial; None if it is left to the trials."""
    orders: Orders = field(default_factory=Orders)
    """What people have ordered."""

    def fidelity(self, number: int, metrics: dict[str, Any]) -> int:
        """Of a trial's ``number``-th report, whose ``metrics`` are flat."""
        return number if self.step_name == "training_iteration" else int(metrics[self.step_name])

    def begins_at(self, number: int, metrics: dict[str, Any]) -> int:
        """The fidelity at which a clone starts from the checkpoint of that report: it counts its own reports from 1."""
        return 0 if self.step_name == "training_iteration" else self.fidelity(number, metrics)

    def _reading(self, number: int, metrics: dict[str, Any]) -> Reading:
        read = metrics_read(self.objectives, self.constraints)
        return self.fidelity(number, metrics), tuple(float(metrics[name]) for name in read)

    def learn(self, trial_id: str, configuration: Configuration, readings: Sequence[Reading], failed: bool) -> None:
        """A trial of an earlier run, which only the searcher learns of."""
        reports = tuple((step, compared(self.objectives, self._searched(read))) for step, read in readings)
        step, read = readings[-1] if readings else (0, None)
        result = None if failed or read is None else self._told(read)
        margins = tuple(self._margins(read) for _, read in readings) if self.constraints else ()
        self.searcher.learn(PastTrial(trial_id, configuration, reports, step, result, margins))

    def suggest(self, trial_id: str) -> Configuration | None:
        """The configuration of a new trial; None if the searcher has no more."""
        return self.searcher.suggest(trial_id)

    def adopt(self, trial_id: str, configuration: Configuration) -> None:
        """The configuration of a new trial is one that the searcher did not suggest, maybe of another space."""
        inside = self.space.contains(configuration)
        point, problem = (configuration, "") if inside else self.space.project(configuration)
        if problem:
            self.outside[trial_id] = problem
        else:
            self.searcher.register(trial_id, point)

    def _searcher_of(self, trial_id: str) -> Searcher:
        """Who learns of the trial."""
        return _Nobody() if trial_id in self.outside else self.searcher

    def add(self, trial_id: str, configuration: Configuration, begins_at: int = 0) -> None:
        """A suggested trial is to run; ``begins_at``: the fidelity of the checkpoint that it starts from."""
        self._seen[trial_id] = 0
        if self.scheduler and trial_id not in self.orders.kept:
            if begins_at:
                self.scheduler.add_at(trial_id, configuration, begins_at)
            else:
                self.scheduler.add(trial_id, configuration)

    def renew(self, other: SearchState) -> None:
        """Continues with the searcher of ``other``, which knows of the same trials, and searches in its space."""
        self.searcher, self.space, self.outside = other.searcher, other.space, other.outside

    def commanded(self, event: Event) -> None:
        """A command was carried out."""
        self.orders.apply(event)
        if event["do"] == "keep-trial" and self.scheduler:
            for trial_id in filter(self.runs, event["trials"]):
                self.scheduler.remove(trial_id)

    @property
    def open(self) -> set[str]:
        """The trials that were added and have not ended."""
        return set(self._seen)

    def runs(self, trial_id: str) -> bool:
        """Whether the trial was added and has not ended."""
        return trial_id in self._seen

    def audited_at(self, trial_id: str) -> int | None:
        """The step at which the scheduler would have stopped an open trial that the audit keeps; None for others."""
        return self.scheduler.kept.get(trial_id) if isinstance(self.scheduler, Audited) else None

    def report(self, trial_id: str, number: int, metrics: dict[str, Any], seconds: float) -> Decision | Exploit:
        """What the trial said, flat, in its ``number``-th report, when it had run for ``seconds``.

        One that came before (the trial was taken back to a checkpoint) decides nothing.
        """
        if number <= self._seen[trial_id]:
            return Decision.CONTINUE
        self._seen[trial_id] = number
        self._last[trial_id] = step, read = self._reading(number, metrics)
        searcher = self._searcher_of(trial_id)
        searcher.on_seconds(trial_id, seconds)
        if margins := self._margins(read):
            searcher.on_margins(trial_id, margins)
        searcher.on_report(trial_id, step, compared(self.objectives, self._searched(read)))
        decision = self._decision(trial_id, step, self._ranked(read), seconds)
        if decision is Decision.PAUSE:
            self.paused.add(trial_id)
            searcher.on_pause(trial_id, step, self._told(read))
        if decision is Decision.STOP:
            self.stopping.add(trial_id)
        return decision

    def _decision(self, trial_id: str, step: int, values: tuple[float, ...], seconds: float) -> Decision | Exploit:
        """What becomes of a trial that has just reported."""
        if self.scheduler is None:
            return Decision.CONTINUE
        if trial_id in self.orders.kept:
            return Decision.STOP if self.ends_at is not None and step >= self.ends_at else Decision.CONTINUE
        self.scheduler.on_seconds(trial_id, seconds)
        if len(values) == 1 or have_weights(self.objectives):
            return self.scheduler.report(trial_id, step, compared(self.objectives, values))
        return self.scheduler.report_all(trial_id, step, values)

    def next_action(self, more: bool) -> Resume | Stop | None:
        """Whom a free slot belongs to."""
        assert self.scheduler is not None
        self.more = more
        kept = min(self.paused & self.orders.kept, default=None)
        action = self.scheduler.next_action(more) if kept is None else Resume(kept)
        if action is not None:
            self.paused.discard(action.trial_id)
        if isinstance(action, Resume):
            self._searcher_of(action.trial_id).on_resume(action.trial_id)
        if isinstance(action, Stop):
            self.stopping.add(action.trial_id)
        return action

    def end(self, trial_id: str, failed: bool) -> None:
        """The trial ended."""
        self.paused.discard(trial_id)
        self.stopping.discard(trial_id)
        self._seen.pop(trial_id, None)
        if self.scheduler and trial_id not in self.orders.kept:
            self.scheduler.remove(trial_id)
        self.orders.ended(trial_id)
        last = self._last.pop(trial_id, None)
        if failed or last is None:
            self._searcher_of(trial_id).on_end(trial_id, 0, None)
        else:
            self._searcher_of(trial_id).on_end(trial_id, last[0], self._told(last[1]))

    def _ranked(self, read: tuple[float, ...]) -> tuple[float, ...]:
        """The objectives of a reading, worse than all others if it breaks a constraint."""
        return ranked_values(self.objectives, self.constraints, read)

    def _margins(self, read: tuple[float, ...]) -> tuple[float, ...]:
        """By how much a reading keeps each constraint."""
        limited = read[len(self.objectives) :]
        return tuple(one.margin(value) for one, value in zip(self.constraints, limited, strict=True))

    def _searched(self, read: tuple[float, ...]) -> tuple[float, ...]:
        """The objectives of a reading as the searcher is to see them."""
        return read[: len(self.objectives)] if self.models_margins else self._ranked(read)

    def _told(self, read: tuple[float, ...]) -> tuple[float, ...]:
        """What the searcher learns of a reading."""
        values = self._searched(read)
        return (compared(self.objectives, values),) if self.scalarised else values
