"""How Optuna's samplers are asked and told. Imported by `Optuna.build` only, because it imports Optuna."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState, create_trial

from tuner.searchers.base import Searcher
from tuner.searchers.optuna.space import distribution, encode, key, suggest
from tuner.searchers.optuna.storage import TrialStorage, bounded
from tuner.searchers.prior_draws import PriorDraws
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Parameter, Path, at

_SALT = 0x72616E646F6D
"""Keeps the draws at random apart from other ones with the same seed."""


class OptunaSearcher(Searcher):
    """Asks a study, and reports the result of each trial to it.

    ``storage`` decides how the sampler sees a trial that was stopped early. It never sees one as pruned. Optuna 5.0's
    TPESampler ranks every complete trial before every pruned one. So it would take the first trials of ASHA for the
    best: they run to the end because there was nothing to compare them with. Its other samplers ignore pruned trials.
    """

    def __init__(
        self,
        task: SearchProblem,
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

    def register(self, trial_id: str, configuration: Configuration) -> None:
        self._ask(trial_id, self._chosen(lambda parameter: at(configuration, parameter.path)))

    def on_report(self, trial_id: str, step: int, value: float) -> None:
        if trial_id in self._pending:
            self._priors.trained.on_report(trial_id, step)
            self._storage.report(self._pending[trial_id].number, step, value)

    def on_pause(self, trial_id: str, step: int, values: tuple[float, ...]) -> None:
        if trial_id in self._pending:
            self._storage.pause(self._pending[trial_id].number, [bounded(value) for value in values])

    def on_resume(self, trial_id: str) -> None:
        if trial_id in self._pending:
            self._storage.resume(self._pending[trial_id].number)

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        """A trial that this searcher does not know (after a restore from an older snapshot) is passed over."""
        if trial_id not in self._pending:
            return
        trial = self._pending.pop(trial_id)
        self._priors.trained.end(trial_id, step)
        self._storage.end(trial.number, step, values)
        if values is None:
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, [bounded(value) for value in values])

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
            self._study.enqueue_trial({key(path): encode(domains[path], value) for path, value in fixed.items()})
        with silence_optuna():  # GPSampler complains once that greenlet, which only makes it faster, is missing
            trial = self._study.ask()
            self._pending[trial_id] = trial
            return self._configure(trial)

    def _configure(self, trial: optuna.Trial) -> Configuration:
        """Asks for one parameter after the other (define-by-run), so that the sampler sees the active ones only."""
        return self._space.build(lambda parameter: suggest(trial, parameter))


class FixedSpaceSearcher(OptunaSearcher):
    """Asks for all parameters, active or not: for samplers that model one fixed set.

    Asked for the active ones only, Optuna's other samplers draw every conditional parameter at random.
    """

    def _configure(self, trial: optuna.Trial) -> Configuration:
        drawn = {p.path: suggest(trial, p) for p in self._space.parameters if p.free}
        return self._space.build(lambda parameter: drawn[parameter.path])


class QmcSearcher(FixedSpaceSearcher):
    """Takes the next point of a sequence."""

    def __init__(
        self, task: SearchProblem, sampler: optuna.samplers.BaseSampler, storage: TrialStorage, beta: int
    ) -> None:
        """Lets QMCSampler know the space through a trial that never ran.

        It takes the space from the first trial that ended, and draws at random until there is one.
        """
        super().__init__(task, sampler, storage, beta)
        known = {key(p.path): distribution(p.domain) for p in task.space.parameters if p.free}
        lowest = {name: d.choices[0] if isinstance(d, CategoricalDistribution) else d.low for name, d in known.items()}
        if known:
            self._study.add_trial(create_trial(state=TrialState.PRUNED, params=lowest, distributions=known))


@contextmanager
def silence_optuna() -> Iterator[None]:
    """Keeps quiet about a new study, and about the options that Optuna calls experimental (``group``, QMC)."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
