"""What Optuna's samplers see of the trials. Imported where a study is built only, because it imports Optuna."""

from __future__ import annotations

import copy
from collections.abc import Container

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from tuner.searchers.observations import Observations
from tuner.spec.outcome_constraints import is_infeasible
from tuner.spec.problem import SearchProblem

_LARGEST = 1e30
"""A diverged loss becomes this: GPSampler squares values, and hypervolumes multiply them."""


class TrialStorage(optuna.storages.InMemoryStorage):  # type: ignore[misc]
    """Shows a sampler a bounded number of trials, so that a suggestion never costs more than with so many."""

    def report(self, number: int, step: int, value: float) -> None:
        """A running trial reported ``value`` of the first objective at ``step``."""

    def pause(self, number: int, values: list[float]) -> None:
        """A running trial waits with these values."""

    def resume(self, number: int) -> None:
        """A paused trial runs again."""

    def end(self, number: int, step: int, values: tuple[float, ...] | None) -> None:
        """A running or paused trial ended with these values, or failed."""

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if deepcopy or states == (TrialState.WAITING,):
            return super().get_all_trials(study_id, deepcopy, states)  # type: ignore[no-any-return]
        shown = self._view()
        return shown if states is None else [trial for trial in shown if trial.state in states]

    def _view(self) -> list[FrozenTrial]:
        """What the sampler sees."""
        raise NotImplementedError


class BoundedStorage(TrialStorage):
    """Shows the trials with their last values, and forgets some of them.

    A paused trial is shown as an ended one: most never run again, and a sampler would wait for them for ever.
    When more than ``max_history`` trials have ended, it continues with half as many: the best quarter and the latest,
    where a trial is the better the fewer others dominate it (Fonseca and Fleming 1993). Failed trials are forgotten,
    pending ones and the one that shows `QmcSearcher` the space never.
    """

    def __init__(self, max_history: int) -> None:
        super().__init__()
        self._max_history = max_history
        self._shown: list[int] = []
        self._spared = 0
        """How many of the trials in ``_shown`` have been through `_forget`."""
        self._paused: dict[int, list[float]] = {}
        """Of the paused trials: their values."""
        self._before: dict[int, list[float]] = {}
        """Of the trials that were paused and run again, or failed then: their values when they were paused last."""

    def pause(self, number: int, values: list[float]) -> None:
        self._paused[number] = values

    def resume(self, number: int) -> None:
        if number in self._paused:
            self._before[number] = self._paused.pop(number)
        if number not in self._shown:
            self._shown.append(number)

    def end(self, number: int, step: int, values: tuple[float, ...] | None) -> None:
        last = self._paused.pop(number, None)
        if values is not None:
            self._before.pop(number, None)
        elif last is not None:
            self._before[number] = last

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        if len(self._shown) >= self._spared + self._max_history // 2 and len(self._shown) >= self._max_history:
            self._forget(study_id)
        trial_id: int = super().create_new_trial(study_id, template_trial)
        self._shown.append(trial_id)
        return trial_id

    def _view(self) -> list[FrozenTrial]:
        return [self._at_last(trial_id) for trial_id in self._shown]

    def _at_last(self, trial_id: int) -> FrozenTrial:
        """The trial, complete where it is paused.

        NSGA-II compares the parents of a generation, which it chose while they were paused, by their values.
        """
        shown = self.get_trial(trial_id)
        if trial_id in self._paused:
            shown = copy.copy(shown)
            shown.state, shown.values = TrialState.COMPLETE, self._paused[trial_id]
        elif trial_id in self._before:
            shown = copy.copy(shown)
            shown.values = self._before[trial_id]
        return shown

    def _forget(self, study_id: int) -> None:
        shown = self._view()
        ended = [trial for trial in shown if trial.state == TrialState.COMPLETE]
        kept = {trial._trial_id for trial in shown if trial.state not in (TrialState.COMPLETE, TrialState.FAIL)}
        signs = [1 if d == optuna.study.StudyDirection.MINIMIZE else -1 for d in self.get_study_directions(study_id)]
        kept.update(trial._trial_id for trial in _best_first(ended, signs)[: self._max_history // 4])
        latest = [trial._trial_id for trial in ended if trial._trial_id not in kept]
        kept.update(latest[-(self._max_history // 4) :])
        self._shown = [trial_id for trial_id in self._shown if trial_id in kept]
        self._before = {trial_id: values for trial_id, values in self._before.items() if trial_id in kept}
        self._spared = len(self._shown)


class SingleFidelityStorage(TrialStorage):
    """Shows a sampler the trials as they were at one fidelity b, the highest at which ``enough`` of them reported.

    As in BOHB (Falkner et al. 2018). Values of different fidelities do not compare. The first trials of ASHA run to the
    end because there was nothing to compare them with. A model of the last values takes them for good ones, and asks
    for their neighbours for ever.

    - A trial that reached b is complete with its value there, even while it runs.
    - A trial that runs and has not reached b is pending.
    - A trial that ended or waits below b, or that failed, is not shown.
    - Without ``repeats``, a trial with the same value as an earlier one is not shown. If a metric is coarse, or a table
      answers, such trials would weigh one observation many times in a kernel density (docs/benchmarks/constants.md).
    """

    def __init__(self, task: SearchProblem, max_history: int, enough: int, repeats: bool) -> None:
        super().__init__()
        self._max_history = max_history
        self._repeats = repeats
        self._observations = Observations(task.max_t, enough)
        self._sign = task.sign
        self._running: set[int] = set()
        self._copies: dict[int, FrozenTrial] = {}
        """Of the trials that were shown last: as they were shown."""

    def report(self, number: int, step: int, value: float) -> None:
        self._observations.report(number, step, -self._sign * value)

    def pause(self, number: int, values: list[float]) -> None:
        self._running.discard(number)

    def resume(self, number: int) -> None:
        self._running.add(number)

    def end(self, number: int, step: int, values: tuple[float, ...] | None) -> None:
        self._running.discard(number)
        if values is None:
            self._observations.fail(number)
        else:
            self._observations.end(number, step, -self._sign * values[0])

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        trial_id: int = super().create_new_trial(study_id, template_trial)
        self._running.add(trial_id)
        self._observations.start(trial_id)
        return trial_id

    def _view(self) -> list[FrozenTrial]:
        known = self._observations.known(self._max_history)
        if not self._repeats:
            known = _without_repeats(known)
        self._copies = {number: self._at(number, -self._sign * known[number]) for number in known}
        return [
            self._copies[number] if number in known else self.get_trial(number)
            for number in sorted(self._running | known.keys())
        ]

    def _at(self, number: int, value: float) -> FrozenTrial:
        """The trial with ``value`` as its result."""
        shown = self._copies.get(number)
        if shown is None or shown.value != bounded(value):
            shown = copy.copy(self.get_trial(number))
            shown.state, shown.value = TrialState.COMPLETE, bounded(value)
        return shown


def _without_repeats(losses: dict[int, float]) -> dict[int, float]:
    """Of trials with the same loss only the first; of trials that break an outcome constraint all."""
    first: dict[float, int] = {}
    for number in sorted(losses):
        first.setdefault(losses[number], number)
    return {number: loss for number, loss in losses.items() if first[loss] == number or is_infeasible(loss)}


def bounded(value: float) -> float:
    """``value`` as a study may know it."""
    return min(max(value, -_LARGEST), _LARGEST)


def _best_first(ended: list[FrozenTrial], signs: list[int]) -> list[FrozenTrial]:
    losses = np.array([trial.values for trial in ended]).reshape(len(ended), -1) * signs
    dominators = [((losses <= own).all(axis=1) & (losses < own).any(axis=1)).sum() for own in losses]
    return [ended[k] for k in np.argsort(dominators, kind="stable")]
