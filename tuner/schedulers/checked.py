"""A third party's scheduler: it is named where it raises, or answers what it must not."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tuner.errors import InputError, blaming
from tuner.schedulers.base import Decision, Exploit, Resume, Scheduler, SchedulerSpec, Stop
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem


def checked(spec: SchedulerSpec, task: SearchProblem) -> Scheduler:
    """The scheduler that ``spec`` builds, with checks around it."""
    name = f"scheduler {type(spec).__qualname__}"
    with blaming(name):
        built = spec.build(task)
    if not isinstance(built, Scheduler):
        raise InputError(f"{name}: build must return a tuner.schedulers.Scheduler, not {type(built).__name__}")
    return Checked(built, spec.pauses, name)


class Checked(Scheduler):
    """Passes everything on to ``inner``."""

    def __init__(self, inner: Scheduler, pauses: bool, name: str) -> None:
        self._inner, self._pauses, self._name = inner, pauses, name

    def _blaming(self) -> AbstractContextManager[None]:
        return blaming(self._name)

    def add(self, trial_id: str, configuration: Configuration) -> None:
        with self._blaming():
            self._inner.add(trial_id, configuration)

    def add_at(self, trial_id: str, configuration: Configuration, step: int) -> None:
        with self._blaming():
            self._inner.add_at(trial_id, configuration, step)

    def on_seconds(self, trial_id: str, seconds: float) -> None:
        with self._blaming():
            self._inner.on_seconds(trial_id, seconds)

    def report(self, trial_id: str, step: int, value: float) -> Decision | Exploit:
        with self._blaming():
            decision = self._inner.report(trial_id, step, value)
        return self._allowed(decision)

    def report_all(self, trial_id: str, step: int, values: tuple[float, ...]) -> Decision | Exploit:
        with self._blaming():
            decision = self._inner.report_all(trial_id, step, values)
        return self._allowed(decision)

    def _allowed(self, decision: Decision | Exploit) -> Decision | Exploit:
        if not isinstance(decision, (Decision, Exploit)):
            raise InputError(f"{self._name}: report must return a Decision or an Exploit, not {decision!r}")
        if not self._pauses and (decision is Decision.PAUSE or isinstance(decision, Exploit)):
            what = "pauses" if decision is Decision.PAUSE else "exploits"
            raise InputError(f"{self._name} {what} trials: its specification must define `pauses`, and return True")
        return decision

    def remove(self, trial_id: str) -> None:
        with self._blaming():
            self._inner.remove(trial_id)

    def next_action(self, more: bool) -> Resume | Stop | None:
        with self._blaming():
            action = self._inner.next_action(more)
        if action is not None and not isinstance(action, (Resume, Stop)):
            raise InputError(f"{self._name}: next must return Resume, Stop or None, not {action!r}")
        return action
