"""How Optuna's samplers are asked and told. Imported by `Optuna.build` only, because it imports Optuna."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.configuration import Configuration
from tuner.searchers.base import Searcher
from tuner.searchers.observations import Observations
from tuner.searchers.prior_draws import PriorDraws
from tuner.spec.space import Choice, Domain, Float, Integer, Normal, Parameter, Path, at
from tuner.spec.task import Task

_SALT = 0x72616E646F6D
"""Keeps the draws at random apart from other ones with the same seed."""

_TAIL = 1e-9
"""The share of a normal distribution left out at each end: about 6 standard deviations from the mean."""

_LARGEST = 1e30
"""A diverged loss is told as this: GPSampler squares values, and hypervolumes multiply them."""

_MAX_STEPS = 10_000
"""Above so many separate values a range counts as continuous: GPSampler allocates an array of all of them."""


class OptunaSearcher(Searcher):
    """Asks a study, and tells it how each trial went.

    What the sampler makes of a trial that was stopped early is up to ``storage``; it is never told as pruned: Optuna
    5.0's TPESampler puts every complete trial before every pruned one, and so takes the first trials of ASHA, which run
    to the end as there was nothing to compare them with, for the best; its other samplers pass over pruned trials.
    """

    def __init__(
        self,
        task: Task,
        sampler: optuna.samplers.BaseSampler,
        storage: TrialStorage,
        beta: int,
        random_fraction: float = 0.0,
    ) -> None:
        self._space = task.space
        self._storage = storage
        self._random_fraction = random_fraction
        self._rng = np.random.default_rng([task.seed, _SALT])
        self._study = optuna.create_study(
            storage=storage,
            sampler=sampler,
            pruner=optuna.pruners.NopPruner(),
            directions=["minimize" if mode == "min" else "maximize" for mode in task.modes],
        )
        self._priors = PriorDraws(task, beta)
        self._pending: dict[str, optuna.Trial] = {}
        """Trials that have not ended, by id."""

    def suggest(self, trial_id: str) -> Configuration:
        chosen: dict[Path, Any] = {}
        if self._rng.random() < self._random_fraction:
            chosen = self._chosen(lambda parameter: parameter.domain.sample(self._rng))
        return self._ask(trial_id, chosen | self._priors.draw())

    def adopt(self, trial_id: str, configuration: Configuration) -> None:
        self._ask(trial_id, self._chosen(lambda parameter: at(configuration, parameter.path)))

    def observe(self, trial_id: str, step: int, value: float) -> None:
        if trial_id in self._pending:
            self._priors.trained.observe(trial_id, step)
            self._storage.report(self._pending[trial_id].number, step, value)

    def pause(self, trial_id: str, step: int, values: tuple[float, ...]) -> None:
        if trial_id in self._pending:
            self._storage.pause(self._pending[trial_id].number, [_bounded(value) for value in values])

    def resume(self, trial_id: str) -> None:
        if trial_id in self._pending:
            self._storage.resume(self._pending[trial_id].number)

    def end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        """A trial that this searcher does not know (after a restore from an older snapshot) is passed over."""
        if trial_id not in self._pending:
            return
        trial = self._pending.pop(trial_id)
        self._priors.trained.end(trial_id, step)
        self._storage.end(trial.number, step, values)
        if values is None:
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, [_bounded(value) for value in values])

    def _chosen(self, choose: Callable[[Parameter], Any]) -> dict[Path, Any]:
        """What ``choose`` answers for each active parameter of a configuration."""
        chosen: dict[Path, Any] = {}

        def remember(parameter: Parameter) -> Any:
            chosen[parameter.path] = choose(parameter)
            return chosen[parameter.path]

        self._space.build(remember)
        return chosen

    def _ask(self, trial_id: str, fixed: dict[Path, Any]) -> Configuration:
        """A new trial, in which the parameters in ``fixed`` have those values."""
        if fixed:
            domains = {parameter.path: parameter.domain for parameter in self._space.parameters}
            self._study.enqueue_trial({_key(path): _encode(domains[path], value) for path, value in fixed.items()})
        with quiet():  # GPSampler complains once that greenlet, which only makes it faster, is missing
            trial = self._study.ask()
            self._pending[trial_id] = trial
            return self._configure(trial)

    def _configure(self, trial: optuna.Trial) -> Configuration:
        """Asks for one parameter after the other (define-by-run), so that the sampler sees the active ones only."""
        return self._space.build(lambda parameter: _decode(parameter.domain, _suggest(trial, parameter)))


class WholeSpace(OptunaSearcher):
    """Asks for all parameters, active or not: for samplers that model one fixed set.

    Asked for the active ones only, Optuna's other samplers draw every conditional parameter at random.
    """

    def _configure(self, trial: optuna.Trial) -> Configuration:
        drawn = {p.path: _decode(p.domain, _suggest(trial, p)) for p in self._space.parameters if p.free}
        return self._space.build(lambda parameter: drawn[parameter.path])


class Sequence(WholeSpace):
    """Takes the next point of a sequence."""

    def __init__(self, task: Task, sampler: optuna.samplers.BaseSampler, storage: TrialStorage, beta: int) -> None:
        """Lets QMCSampler know the space through a trial that never ran.

        It takes the space from the first trial that ended, and draws at random until there is one.
        """
        super().__init__(task, sampler, storage, beta)
        known = {_key(p.path): _distribution(p.domain) for p in task.space.parameters if p.free}
        lowest = {key: d.choices[0] if isinstance(d, CategoricalDistribution) else d.low for key, d in known.items()}
        if known:
            self._study.add_trial(create_trial(state=TrialState.PRUNED, params=lowest, distributions=known))


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


class ForgetfulStorage(TrialStorage):
    """Shows the trials with their last values, and forgets some of them.

    A paused trial is shown as an ended one: most never run again, and a sampler would wait for them for ever.
    When more than ``max_history`` trials have ended, it goes on with half as many: the best quarter and the latest,
    where a trial is the better the fewer others dominate it (Fonseca and Fleming 1993). Failed trials are forgotten,
    pending ones and the one that shows `Sequence` the space never.
    """

    def __init__(self, max_history: int) -> None:
        super().__init__()
        self._max_history = max_history
        self._shown: list[int] = []
        self._spared = 0
        """How many of the trials in ``_shown`` have been through `_forget`."""
        self._paused: dict[int, list[float]] = {}
        """Of the paused trials: their values."""

    def pause(self, number: int, values: list[float]) -> None:
        self._paused[number] = values

    def resume(self, number: int) -> None:
        self._paused.pop(number, None)
        if number not in self._shown:
            self._shown.append(number)

    def end(self, number: int, step: int, values: tuple[float, ...] | None) -> None:
        self._paused.pop(number, None)

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        if len(self._shown) >= self._spared + self._max_history // 2 and len(self._shown) >= self._max_history:
            self._forget(study_id)
        trial_id: int = super().create_new_trial(study_id, template_trial)
        self._shown.append(trial_id)
        return trial_id

    def _view(self) -> list[FrozenTrial]:
        return [self._at_last(trial_id) for trial_id in self._shown]

    def _at_last(self, trial_id: int) -> FrozenTrial:
        """The trial, complete where it is paused."""
        shown = self.get_trial(trial_id)
        if trial_id in self._paused:
            shown = copy.copy(shown)
            shown.state, shown.values = TrialState.COMPLETE, self._paused[trial_id]
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
        self._spared = len(self._shown)


class OneFidelityStorage(TrialStorage):
    """Shows a sampler the trials as they were at one fidelity b, the highest at which ``enough`` of them reported.

    As in BOHB (Falkner et al. 2018). Values of different fidelities do not compare: a model of the last values takes
    the first trials of ASHA, which run to the end as there was nothing to compare them with, for good ones, and asks
    for their neighbours for ever. Trials that reached b are complete with their value there, also when they still run;
    those that run and have not yet are pending; those that ended or wait below b, or failed, are not shown. Nor,
    without ``repeats``, are trials with the very value of one before them: where a metric is coarse, or a table
    answers, they would make a crowd of one observation for a kernel density (12 tasks of LCBench, 5 seeds, TPE, ASHA
    with grace period 3: regret 0.058 ± 0.006 with them, 0.044 ± 0.008 without).
    """

    def __init__(self, task: Task, max_history: int, enough: int, repeats: bool) -> None:
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
        if shown is None or shown.value != _bounded(value):
            shown = copy.copy(self.get_trial(number))
            shown.state, shown.value = TrialState.COMPLETE, _bounded(value)
        return shown


def _without_repeats(losses: dict[int, float]) -> dict[int, float]:
    """Of trials with the same loss only the first."""
    first: dict[float, int] = {}
    for number in sorted(losses):
        first.setdefault(losses[number], number)
    return {number: loss for loss, number in first.items()}


def _bounded(value: float) -> float:
    return min(max(value, -_LARGEST), _LARGEST)


def _best_first(ended: list[FrozenTrial], signs: list[int]) -> list[FrozenTrial]:
    losses = np.array([trial.values for trial in ended]).reshape(len(ended), -1) * signs
    dominators = [((losses <= own).all(axis=1) & (losses < own).any(axis=1)).sum() for own in losses]
    return [ended[k] for k in np.argsort(dominators, kind="stable")]


def _key(path: Path) -> str:
    return "/".join(path)


def _distribution(domain: Domain) -> BaseDistribution:
    """What Optuna draws from; `_decode` makes it a value of ``domain``.

    Optuna rounds to a quantum in floats and knows none on a log scale, so it draws the multiple k of ``q`` instead; and
    it knows no normal distribution, so it draws the cumulative probability.
    """
    match domain:
        case Float(q=None):
            return FloatDistribution(float(domain.lower), float(domain.upper), log=domain.log)
        case Float(steps=(first, last)) | Integer(steps=(first, last)):
            if last - first < _MAX_STEPS:
                return IntDistribution(first, last, log=domain.log)
            return FloatDistribution(float(first), float(last) + 1.0, log=domain.log)  # rounded down by _decode
        case Normal():
            return FloatDistribution(_TAIL, 1 - _TAIL)
        case Choice():
            return CategoricalDistribution(range(len(domain.categories)))
    raise NotImplementedError(f"Optuna cannot draw from {domain}")


def _decode(domain: Domain, drawn: Any) -> Any:
    match domain:
        case Float(q=None):
            return float(drawn)
        case Float() | Integer():
            return domain.at(math.floor(drawn))
        case Normal():
            return domain.quantile(float(drawn))
    return domain.value(int(drawn))


def _encode(domain: Domain, value: Any) -> float | int:
    """What `_decode` makes ``value`` of."""
    match domain:
        case Float(q=None):
            return float(value)
        case Float() | Integer():
            step = int(value // (domain.q or 1)) if isinstance(domain, Integer) else round(value / (domain.q or 1))
            return step if isinstance(_distribution(domain), IntDistribution) else step + 0.5
        case Normal():
            return min(max(domain.to_unit(value), _TAIL), 1 - _TAIL)
        case Choice():
            return int(domain.to_unit(value) * domain.count)
    raise NotImplementedError(f"Optuna cannot draw from {domain}")


def _suggest(trial: optuna.Trial, parameter: Parameter) -> Any:
    match _distribution(parameter.domain):
        case FloatDistribution(low=low, high=high, log=log):
            return trial.suggest_float(_key(parameter.path), low, high, log=log)
        case IntDistribution(low=low, high=high, log=log):
            return trial.suggest_int(_key(parameter.path), low, high, log=log)
        case CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(_key(parameter.path), choices)
    raise NotImplementedError(parameter.name)


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps quiet about a new study, and about the options that Optuna calls experimental (``group``, QMC)."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
