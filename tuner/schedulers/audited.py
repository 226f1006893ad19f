"""An audit of early stopping: some of the trials that a scheduler stops continue to their end."""

from __future__ import annotations

import random

from tuner.schedulers.base import Decision, Exploit, Resume, Scheduler, Stop, StoppingSpec
from tuner.spec.configuration import Configuration


class Audited(Scheduler):
    """Passes everything on to ``inner``, but for the trials that it stops and that the draw keeps.

    To ``inner`` such a trial has ended. So its decisions about the others are those of a search without an audit.
    Who is drawn depends on the seed and the order of the trials alone.
    """

    def __init__(self, inner: Scheduler, spec: StoppingSpec, seed: int) -> None:
        self._inner = inner
        self._spec = spec
        self._rng = random.Random(seed)
        self._drawn: set[str] = set()
        """The open trials that continue if they are to be stopped."""
        self.kept: dict[str, int] = {}
        """Of each open trial that the audit keeps: the step at which it would have been stopped."""
        self._running: set[str] = set()
        self._paused: dict[str, int] = {}
        """The step of each paused trial."""

    def add(self, trial_id: str, configuration: Configuration) -> None:
        self._draw(trial_id)
        self._inner.add(trial_id, configuration)

    def add_at(self, trial_id: str, configuration: Configuration, step: int) -> None:
        self._draw(trial_id)
        self._inner.add_at(trial_id, configuration, step)

    def _draw(self, trial_id: str) -> None:
        if self._rng.random() < self._spec.audit:
            self._drawn.add(trial_id)
        self._running.add(trial_id)

    def on_seconds(self, trial_id: str, seconds: float) -> None:
        if trial_id not in self.kept:
            self._inner.on_seconds(trial_id, seconds)

    def report(self, trial_id: str, step: int, value: float) -> Decision | Exploit:
        if trial_id in self.kept:
            return self._of_kept(step)
        return self._checked(trial_id, step, self._inner.report(trial_id, step, value))

    def report_all(self, trial_id: str, step: int, values: tuple[float, ...]) -> Decision | Exploit:
        if trial_id in self.kept:
            return self._of_kept(step)
        return self._checked(trial_id, step, self._inner.report_all(trial_id, step, values))

    def remove(self, trial_id: str) -> None:
        self._running.discard(trial_id)
        self._drawn.discard(trial_id)
        self._paused.pop(trial_id, None)
        if self.kept.pop(trial_id, None) is None:
            self._inner.remove(trial_id)

    def next_action(self, more: bool) -> Resume | Stop | None:
        action = self._inner.next_action(more)
        if isinstance(action, Stop) and action.trial_id in self._drawn:
            return self._keep_paused(action.trial_id)
        if isinstance(action, Resume):
            self._paused.pop(action.trial_id, None)
            self._running.add(action.trial_id)
        if action is None and not more and not self._running:  # those that are paused are about to end
            drawn = next((trial_id for trial_id in self._paused if trial_id in self._drawn), None)
            return None if drawn is None else self._keep_paused(drawn)
        return action

    def _of_kept(self, step: int) -> Decision:
        ends = step >= self._spec.max_t and self._spec.ends_at_max_t
        return Decision.STOP if ends else Decision.CONTINUE

    def _checked(self, trial_id: str, step: int, decision: Decision | Exploit) -> Decision | Exploit:
        if decision is Decision.STOP and step < self._spec.max_t and trial_id in self._drawn:
            self._keep(trial_id, step)
            return Decision.CONTINUE
        if decision is Decision.PAUSE:
            self._running.discard(trial_id)
            self._paused[trial_id] = step
        return decision

    def _keep(self, trial_id: str, step: int) -> None:
        self.kept[trial_id] = step
        self._inner.remove(trial_id)

    def _keep_paused(self, trial_id: str) -> Resume:
        self._keep(trial_id, self._paused.pop(trial_id))
        self._running.add(trial_id)
        return Resume(trial_id)
