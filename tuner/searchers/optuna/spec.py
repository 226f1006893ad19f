"""Optuna's samplers (Akiba et al. 2019), asked and told directly: the whole space works, conditions included."""

from __future__ import annotations

import importlib.util
import math
from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field, JsonValue

from tuner.errors import InputError
from tuner.searchers.base import Searcher, SearchSpec, initial_trials
from tuner.searchers.unsupported import Problems, unsupported_by_model, unsupported_priors
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Choice, Space

if TYPE_CHECKING:
    import optuna

Sampler = Literal["tpe", "gp", "cmaes", "qmc", "nsga2"]

_HISTORY: dict[Sampler, int] = {"tpe": 250, "gp": 150, "cmaes": 500, "qmc": 500, "nsga2": 500}
"""Default of ``max_history``. The cost of a fit grows with it for tpe and gp; the others only read the list. Numbers:
docs/benchmarks/constants.md."""

_EXAMPLES: list[JsonValue] = [
    {"kind": "optuna", "sampler": "tpe", "n_startup_trials": 4},
    {"kind": "optuna", "sampler": "gp", "n_startup_trials": 8},
    {"kind": "optuna", "sampler": "cmaes"},
    {"kind": "optuna", "sampler": "qmc"},
    {"kind": "optuna", "sampler": "nsga2", "population_size": 10},
]


class Optuna(SearchSpec):
    """Bayesian optimisation, evolution, or a low-discrepancy sequence, by Optuna.

    ``tpe`` is asked for the active parameters only, one after the other (define-by-run). The other samplers can model
    one fixed set of parameters and would draw every conditional one at random: they choose all parameters at once, and
    the inactive ones are left out of the configuration.

    If a parameter has a prior, a share of the trials that shrinks as 1/n draws it from the prior (`PriorDraws`).

    Example:
        >>> import tuner
        >>> tuner.searchers.Optuna(sampler="gp", seed=0).sampler
        'gp'
    """

    model_config = ConfigDict(json_schema_extra={"examples": _EXAMPLES})

    kind: Literal["optuna"] = "optuna"
    """The name of this search algorithm."""
    sampler: Sampler = "tpe"
    """``tpe`` and ``gp`` model the values at one fidelity, the highest at which ``n_startup_trials`` trials reported.
    The others take the last value of a trial that a scheduler stopped or paused, as do all where there are several
    objectives. ``tpe``: tree-structured Parzen estimator (Bergstra et al. 2011; multivariate: Falkner et al. 2018).
    ``gp``: Gaussian process with log expected improvement; for few, costly trials and up to some 20 parameters.
    ``cmaes``: evolution strategy with covariance adaptation (Hansen 2016) over the numeric parameters, of which it
    needs one; each choice is modelled by itself by TPE. ``qmc``: scrambled Sobol sequence, learns nothing and covers
    the space more evenly than random search. ``nsga2``: genetic algorithm for several objectives (Deb et al. 2002).
    Several objectives: all but ``cmaes``."""
    n_startup_trials: int | None = Field(default=None, ge=1)
    """Trials with a value before ``tpe`` or ``gp`` models anything (``cmaes``: its choices); until then it draws at
    random. ``qmc`` and ``nsga2`` ignore it. Absent: 10, or a third of ``budget.trials`` where that is less."""
    n_ei_candidates: int = Field(default=8, ge=1)
    """Draws of ``tpe`` (``cmaes``: for its choices) from the model of the good configurations, of which the one with
    the largest expected improvement is taken. Optuna has 24, see above."""
    random_fraction: float = Field(default=1 / 3, ge=0, le=1)
    """The share of the suggestions of ``tpe`` that are drawn at random. Optuna has 0, see above."""
    population_size: int | None = Field(default=None, ge=2)
    """Trials of one generation of ``nsga2``, which is evolved from the best so many; the others ignore it. Absent: 50,
    or a third of ``budget.trials`` where that is less."""
    max_history: int | None = Field(default=None, ge=50)
    """The most ended trials that a model is fitted to, so that a suggestion never costs more: when there are more, half
    as many stay, namely the best quarter of ``max_history`` and the latest. Absent: 500, ``tpe`` 250, ``gp`` 150; for
    ``nsga2`` it is at least four times ``population_size``."""

    def build(self, task: SearchProblem) -> Searcher:
        from tuner.searchers.optuna import searcher
        from tuner.searchers.optuna.storage import BoundedStorage, SingleFidelityStorage, TrialStorage

        history, startup = self.max_history or _HISTORY[self.sampler], self._startup(task.trials)
        if self.sampler == "nsga2":
            history = max(history, 4 * self._population(task.trials))
        storage: TrialStorage = BoundedStorage(history)
        if self.sampler in ("tpe", "gp") and len(task.modes) == 1:
            storage = SingleFidelityStorage(task, history, startup, repeats=self.sampler == "gp")
        with searcher.silence_optuna():
            common = task, self._sampler(task), storage, startup
            match self.sampler:
                case "tpe":
                    return searcher.OptunaSearcher(*common, random_fraction=self.random_fraction)
                case "qmc":
                    return searcher.QmcSearcher(*common)
            return searcher.FixedSpaceSearcher(*common)

    def _sampler(self, task: SearchProblem) -> optuna.samplers.BaseSampler:
        import optuna

        at_random = optuna.samplers.RandomSampler(seed=task.seed)
        match self.sampler:
            case "tpe":
                return self._tpe(task, multivariate=True)
            case "gp":
                if importlib.util.find_spec("torch") is None:
                    raise InputError("search.sampler: gp needs the package torch: install it, or choose tpe")
                return optuna.samplers.GPSampler(
                    seed=task.seed,
                    independent_sampler=at_random,
                    n_startup_trials=self._startup(task.trials),
                    deterministic_objective=False,
                    warn_independent_sampling=False,
                )
            case "cmaes":
                if importlib.util.find_spec("cmaes") is None:
                    raise InputError("search.sampler: cmaes needs the package cmaes: install it, or choose tpe")
                return optuna.samplers.CmaEsSampler(
                    seed=task.seed,
                    n_startup_trials=1,
                    independent_sampler=self._tpe(task, multivariate=False),
                    warn_independent_sampling=False,
                    consider_pruned_trials=False,
                )
            case "nsga2":
                return optuna.samplers.NSGAIISampler(
                    seed=task.seed,
                    population_size=self._population(task.trials),
                    crossover_prob=0.9,
                    swapping_prob=0.5,
                )
            case "qmc":
                return optuna.samplers.QMCSampler(
                    qmc_type="sobol",
                    scramble=True,
                    seed=task.seed,
                    independent_sampler=at_random,
                    warn_asynchronous_seeding=False,
                    warn_independent_sampling=False,
                )

    def _tpe(self, task: SearchProblem, multivariate: bool) -> optuna.samplers.TPESampler:
        import optuna

        return optuna.samplers.TPESampler(
            n_startup_trials=self._startup(task.trials),
            n_ei_candidates=self.n_ei_candidates,
            seed=task.seed,
            multivariate=multivariate,
            group=multivariate and task.space.conditional,
            constant_liar=True,
        )

    def _startup(self, trials: int) -> int:
        return self.n_startup_trials or initial_trials(10, trials)

    def _population(self, trials: int) -> int:
        return self.population_size or initial_trials(50, trials, least=2)

    def for_trials(self, trials: int) -> Optuna:
        sizes = {"n_startup_trials": self._startup(trials), "population_size": self._population(trials)}
        return self.model_copy(update=sizes)

    def modelled(self, task: SearchProblem, slots: int) -> float:
        match self.sampler:
            case "tpe":
                return self._after(self._startup(task.trials), task, slots) * (1 - self.random_fraction)
            case "gp":
                return self._after(self._startup(task.trials), task, slots)
            case "nsga2":
                return self._after(self._population(task.trials), task, slots)
            case "cmaes":
                numbers = sum(p.free and not isinstance(p.domain, Choice) for p in task.space.parameters)
                return self._after(4 + int(3 * math.log(max(numbers, 1))), task, slots)
            case "qmc":
                return 0

    def mixes_fidelities(self, task: SearchProblem) -> bool:
        return self.sampler in ("cmaes", "nsga2") or (self.sampler != "qmc" and len(task.modes) > 1)

    @property
    def compares_ranks(self) -> bool:
        return self.sampler != "gp"

    @property
    def models_earlier_runs(self) -> bool:
        return self.sampler in ("tpe", "gp")

    @property
    def max_objectives(self) -> float:
        return 1 if self.sampler == "cmaes" else math.inf

    def validate_space(self, space: Space) -> Problems:
        found = unsupported_by_model(space)
        if self.sampler == "qmc":
            found += unsupported_priors(
                space, "a sequence follows none: use another sampler, or search.kind random or bohb"
            )
        if self.sampler == "cmaes" and not any(
            p.domain.count != 1 and not isinstance(p.domain, Choice) for p in space.parameters
        ):
            remedy = "use sampler tpe, gp or nsga2, or search.kind hyperopt, bohb or random"
            found.append(((), f"sampler cmaes needs a numeric parameter, and there is none; {remedy}"))
        return found
