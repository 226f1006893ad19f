"""Optuna's samplers (Akiba et al. 2019), asked and told directly: the whole space works, conditions included."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, JsonValue

from tuner.configuration import Configuration
from tuner.errors import InputError
from tuner.searchers.base import Searcher, SearchSpec, SearchTask
from tuner.spec.space import Choice, Computed, Domain, Float, GridSearch, Integer, Normal, Parameter, Space

if TYPE_CHECKING:
    import optuna

_TAIL = 1e-9
"""The share of a normal distribution left out at each end: about 6 standard deviations from the mean."""

_LARGEST = 1e100
"""A diverged loss is told as this: GPSampler squares values, and would overflow."""

_MAX_STEPS = 10_000
"""Above so many separate values a range counts as continuous: GPSampler allocates an array of all of them."""

_EXAMPLES: list[JsonValue] = [
    {"kind": "optuna", "sampler": "tpe", "n_startup_trials": 4},
    {"kind": "optuna", "sampler": "gp", "n_startup_trials": 4},
    {"kind": "optuna", "sampler": "qmc"},
]


class Optuna(SearchSpec):
    """Bayesian optimisation, or a low-discrepancy sequence, by Optuna."""

    model_config = ConfigDict(json_schema_extra={"examples": _EXAMPLES})

    kind: Literal["optuna"] = "optuna"
    sampler: Literal["tpe", "gp", "qmc"] = "tpe"
    """``tpe``: tree-structured Parzen estimator (Bergstra et al. 2011; multivariate: Falkner et al. 2018), learns from
    trials that a scheduler stopped too. ``gp``: Gaussian process with log expected improvement, takes the last value
    of a stopped trial for its result; for few, costly trials and up to some 20 parameters. ``qmc``: scrambled Sobol
    sequence, learns nothing and covers the space more evenly than random search."""
    n_startup_trials: int = Field(default=10, ge=1)
    """Ended trials before ``tpe`` or ``gp`` models anything; until then it draws at random. ``qmc`` ignores it."""

    def build(self, task: SearchTask) -> Searcher:
        import optuna

        with _quiet():
            study = optuna.create_study(
                storage=optuna.storages.InMemoryStorage(),
                sampler=self._sampler(task),
                pruner=optuna.pruners.NopPruner(),
                direction="minimize" if task.mode == "min" else "maximize",
            )
        searchers: dict[str, Callable[[SearchTask, optuna.Study], Searcher]]
        searchers = {"tpe": DefineByRun, "gp": WholeSpace, "qmc": Sequence}
        return searchers[self.sampler](task, study)

    def _sampler(self, task: SearchTask) -> optuna.samplers.BaseSampler:
        import optuna

        if self.sampler == "tpe":
            return optuna.samplers.TPESampler(
                n_startup_trials=self.n_startup_trials,
                n_ei_candidates=24,
                seed=task.seed,
                multivariate=True,
                group=task.space.conditional,
                constant_liar=True,
            )
        if self.sampler == "gp":
            if importlib.util.find_spec("torch") is None:
                raise InputError("search.sampler: gp needs the package torch: install it, or choose tpe")
            return optuna.samplers.GPSampler(
                seed=task.seed,
                independent_sampler=optuna.samplers.RandomSampler(seed=task.seed),
                n_startup_trials=self.n_startup_trials,
                deterministic_objective=False,
                warn_independent_sampling=False,
            )
        return optuna.samplers.QMCSampler(
            qmc_type="sobol",
            scramble=True,
            seed=task.seed,
            independent_sampler=optuna.samplers.RandomSampler(seed=task.seed),
            warn_asynchronous_seeding=False,
            warn_independent_sampling=False,
        )

    def complaints(self, space: Space) -> list[tuple[tuple[str, ...], str]]:
        found = []
        for parameter in space.parameters:
            if isinstance(parameter.domain, GridSearch):
                found.append((parameter.path, "grid_search belongs to grid or random search: use choice here"))
            elif isinstance(parameter.domain, Computed):
                found.append(
                    (parameter.path, "sample_from belongs to grid or random search: compute it in the trainable")
                )
        return found


class OptunaSearcher(Searcher):
    """Asks a study, and tells it how each trial ended."""

    knows_pruning: ClassVar[bool] = True
    """Whether the sampler learns from trials that were stopped early when it is told so."""

    def __init__(self, task: SearchTask, study: optuna.Study) -> None:
        self._space = task.space
        self._max_t = task.max_t
        self._study = study
        self._pending: dict[str, tuple[optuna.Trial, dict[int, float]]] = {}
        """Trials that have not ended, by id, with what each reported by step."""

    def observe(self, trial_id: str, step: int, value: float) -> None:
        if trial_id in self._pending:
            self._pending[trial_id][1][step] = value

    def end(self, trial_id: str, step: int, value: float | None) -> None:
        """A trial that this searcher does not know (after a restore from an older snapshot) is passed over."""
        from optuna.trial import TrialState

        if trial_id not in self._pending:
            return
        trial, reported = self._pending.pop(trial_id)
        if value is None:
            self._study.tell(trial, state=TrialState.FAIL)
        elif self.knows_pruning and self._max_t is not None and step < self._max_t:
            for at_step, at_value in sorted({**reported, step: value}.items()):
                trial.report(at_value, at_step)
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, min(max(value, -_LARGEST), _LARGEST))


class DefineByRun(OptunaSearcher):
    """Asks for one parameter after the other, so that the sampler sees the active ones only."""

    def suggest(self, trial_id: str) -> Configuration:
        trial = self._study.ask()
        self._pending[trial_id] = (trial, {})
        return self._space.build(lambda parameter: _decode(parameter.domain, _suggest(trial, parameter)))


class WholeSpace(OptunaSearcher):
    """Asks for all parameters at once, active or not: for samplers that need one fixed space.

    Asked for the active ones only, Optuna's GPSampler and QMCSampler draw every conditional parameter at random.
    """

    knows_pruning = False
    """Optuna 5.0's GPSampler passes over pruned trials: with a scheduler that stops most, it would stay random."""

    def __init__(self, task: SearchTask, study: optuna.Study) -> None:
        super().__init__(task, study)
        self._distributions = {_key(p): _distribution(p.domain) for p in task.space.parameters if p.free}

    def suggest(self, trial_id: str) -> Configuration:
        with _quiet():  # GPSampler complains once that greenlet, which only makes it faster, is missing
            trial = self._study.ask(self._distributions)
        self._pending[trial_id] = (trial, {})
        drawn = trial.params
        return self._space.build(lambda parameter: _decode(parameter.domain, drawn[_key(parameter)]))


class Sequence(WholeSpace):
    """Takes the next point of a sequence."""

    def __init__(self, task: SearchTask, study: optuna.Study) -> None:
        """Lets QMCSampler know the space through a trial that never ran.

        It takes the space from the first trial that ended, and draws at random until there is one.
        """
        from optuna.distributions import CategoricalDistribution
        from optuna.trial import TrialState, create_trial

        super().__init__(task, study)
        known = self._distributions
        lowest = {key: d.choices[0] if isinstance(d, CategoricalDistribution) else d.low for key, d in known.items()}
        if known:
            study.add_trial(create_trial(state=TrialState.PRUNED, params=lowest, distributions=known))


def _key(parameter: Parameter) -> str:
    return "/".join(parameter.path)


def _distribution(domain: Domain) -> Any:
    """What Optuna draws from; `_decode` makes it a value of ``domain``.

    Optuna rounds to a quantum in floats and knows none on a log scale, so it draws the multiple k of ``q`` instead; and
    it knows no normal distribution, so it draws the cumulative probability.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

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


def _suggest(trial: optuna.Trial, parameter: Parameter) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match _distribution(parameter.domain):
        case FloatDistribution(low=low, high=high, log=log):
            return trial.suggest_float(_key(parameter), low, high, log=log)
        case IntDistribution(low=low, high=high, log=log):
            return trial.suggest_int(_key(parameter), low, high, log=log)
        case CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(_key(parameter), choices)
    raise NotImplementedError(parameter.name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps quiet about a new study, and about the options that Optuna calls experimental (``group``, QMC)."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
