"""A run as an Optuna study, which ``optuna.visualization`` and ``optuna-dashboard`` read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tuner.errors import EnvironmentFailure, InputError
from tuner.redaction import redacted, with_password
from tuner.runs.provenance import experiment_of
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.spec.space import Choice, Computed, Constant, Domain, Float, Integer, Normal, Parameter, at
from tuner.spec.values import is_number, to_inline_yaml, value_key

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

RUN, STARTED, BEST, NOTICES = "run", "started", "best_trial", "notices"
"""User attributes of a study: the name of its run, when that began, the id of its best trial (the front), and what
Optuna could not take as it is."""

TRIAL, NUMBER, REASON, SECONDS = "trial", "number", "reason", "seconds"
"""User attributes of a trial: id, our number (from 1; Optuna's is one less), why it ended, running time in seconds."""

_STATES = {
    "completed": "COMPLETE",
    "stopped": "PRUNED",
    "failed": "FAIL",
    "running": "RUNNING",
    "paused": "RUNNING",
    "pending": "WAITING",
}

_TAIL = 1e-9
"""The share of a normal distribution left out at each end: about 6 standard deviations from the mean."""


def optuna_study(results: ResultSet, storage: str | None = None, name: str | None = None) -> optuna.Study:
    """A new study with all trials of ``results``, in ``storage`` (an SQLAlchemy URL; in memory without one).

    ``name``: of the study; the run's without it. A study that was exported from the same run is replaced.

    A trial has the configuration and the values of its best report; parameters that are inactive in it are absent.
    Its intermediate values are those of the first objective by the scheduler's ``time_attr`` (by the number of the
    report where it has none; of reports at the same step the last). Completed trials are COMPLETE, those that were
    stopped early PRUNED, failed ones, and any without a result, FAIL. Those that run or wait at a rung are RUNNING, as
    they continue; pending ones are WAITING. The study's user attribute ``notices`` names the parameters whose domain
    Optuna has no distribution for, and what stands for it.

    Raises InputError if the URL is wrong or another study has that name, EnvironmentFailure where the database
    cannot be used.
    """
    from tuner.searchers.optuna.searcher import silence_optuna

    space = experiment_of(results).spec.search_space
    columns = [_column(p, results.trials) for p in space.parameters if not isinstance(p.domain, Constant)]
    trials = [_frozen(results, trial, columns) for trial in results.trials]
    with silence_optuna(), _database(storage) as opened:
        study = _emptied(results, opened, name or results.name)
        study.set_user_attr(NOTICES, [f"{column.name}: {column.remark}" for column in columns if column.remark])
        study.add_trials(trials)
    return study


@contextlib.contextmanager
def _database(url: str | None) -> Iterator[BaseStorage]:
    import optuna
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

    shown = url and redacted(url, whole=True)
    try:
        try:
            storage = optuna.storages.get_storage(url and with_password(url))
        except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
            remedy = "write an SQLAlchemy URL whose driver is installed, such as sqlite:///study.db"
            raise InputError(f"{shown!r} is not a database that Optuna can open: {_line(error)}; {remedy}") from None
        yield storage
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError, RuntimeError, OSError) as error:
        remedy = "is its server up, or its folder there and writable?"
        raise EnvironmentFailure(f"the database {shown!r} cannot be used: {_line(error)}; {remedy}") from None


def _line(error: BaseException) -> str:
    return redacted(str(error.__cause__ or error).strip().splitlines()[0])


def _emptied(results: ResultSet, storage: BaseStorage, name: str) -> optuna.Study:
    """A study of that name without trials, in place of an earlier one of the same run."""
    import optuna

    started = results.provenance.get("started")
    known = {study.study_name: study for study in optuna.get_all_study_summaries(storage, include_best_trial=False)}
    if name in known:
        if known[name].user_attrs.get(STARTED) != started:
            raise InputError(f"the storage has a study {name!r} that is not of this run: choose another name (--study)")
        optuna.delete_study(study_name=name, storage=storage)
    directions = ["maximize" if objective.mode == "max" else "minimize" for objective in results.objectives]
    study = optuna.create_study(storage=storage, study_name=name, directions=directions)
    study.set_metric_names([objective.metric for objective in results.objectives])
    best = [trial.id for trial in results.front]
    for attribute, value in {RUN: results.name, STARTED: started, BEST: best}.items():
        study.set_user_attr(attribute, value)
    return study


def _frozen(results: ResultSet, trial: Trial, columns: Sequence[_Column]) -> FrozenTrial:
    from optuna.trial import FrozenTrial, TrialState

    state = TrialState[_STATES[trial.status]]
    if state == TrialState.COMPLETE and trial.best is None:
        state = TrialState.FAIL
    active = [column for column in columns if trial.id in column.values]
    distributions = {column.name: column.distribution for column in active if column.distribution}
    began, ended = _times(results, trial)
    return FrozenTrial(
        number=trial.number - 1,
        trial_id=-1,  # the storage gives it one
        state=state,
        value=None,
        values=[trial.best.number(objective.metric) for objective in results.objectives]
        if trial.best and state != TrialState.FAIL
        else None,
        datetime_start=None if state == TrialState.WAITING else began,
        datetime_complete=ended if state.is_finished() else None,
        params={column.name: column.values[trial.id] for column in active if column.distribution},
        distributions=distributions,
        user_attrs={TRIAL: trial.id, NUMBER: trial.number, REASON: trial.why, SECONDS: trial.seconds}
        | {f"config.{column.name}": column.values[trial.id] for column in active if not column.distribution},
        system_attrs=_constraints(results, trial),
        intermediate_values=_curve(results, trial),
    )


def _constraints(results: ResultSet, trial: Trial) -> dict[str, Any]:
    """By how much the trial breaks each outcome constraint, where Optuna looks for it; above 0 is infeasible there."""
    if trial.best is None or not results.outcome_constraints:
        return {}
    return {"constraints": [one.violation(trial.best.number(one.metric)) for one in results.outcome_constraints]}


def _curve(results: ResultSet, trial: Trial) -> dict[int, float]:
    time_attr = results.section("scheduler").get("time_attr", "")
    return {int(report.progress(time_attr)): results.value(report) for report in trial.reports}


def _times(results: ResultSet, trial: Trial) -> tuple[datetime, datetime]:
    """When the trial began and last reported; the run's own beginning for one that never did."""
    if not trial.reports:
        began = datetime.fromisoformat(results.provenance["started"]).replace(tzinfo=None)
        return began, began
    first, last = trial.reports[0], trial.reports[-1]
    return datetime.fromtimestamp(first.timestamp - first.seconds), datetime.fromtimestamp(last.timestamp)


@dataclass(frozen=True)
class _Column:
    """A parameter of the search space as Optuna has it."""

    name: str
    values: dict[str, Any]
    """By trial; those in which it is active."""
    distribution: BaseDistribution | None
    """The same in all trials, as Optuna's plots pass over a parameter whose range changes; None for one that is
    computed from the others."""
    remark: str = ""
    """How it differs from the domain."""


def _column(parameter: Parameter, trials: Sequence[Trial]) -> _Column:
    domain, values = parameter.domain, {}
    for trial in trials:
        with contextlib.suppress(KeyError):
            values[trial.id] = at(trial.config, parameter.path)
    if isinstance(domain, Computed):
        remark = f"computed from the others: the user attribute config.{parameter.name} of each trial"
        told = {trial: value if _is_plain(value) else to_inline_yaml(value) for trial, value in values.items()}
        return _Column(parameter.name, told, None, remark)
    if isinstance(domain, Choice) or not all(map(is_number, values.values())):
        return _categorical(parameter, values)
    return _numeric(parameter, values)


def _is_plain(value: Any) -> bool:
    """Whether a database keeps it."""
    return value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and value == value)


def _categorical(parameter: Parameter, values: dict[str, Any]) -> _Column:
    """Values that a database does not keep, and any that Optuna takes for the same (1, 1.0, True), become text."""
    from optuna.distributions import CategoricalDistribution

    domain = parameter.domain
    known = [*(domain.categories if isinstance(domain, Choice) else ()), *values.values()]
    choices = list({value_key(value): value for value in known}.values())
    if all(map(_is_plain, choices)) and len(set(choices)) == len(choices):
        return _Column(parameter.name, values, CategoricalDistribution(choices))
    texts = {trial: to_inline_yaml(value) for trial, value in values.items()}
    choices = list(dict.fromkeys(map(to_inline_yaml, choices)))
    return _Column(parameter.name, texts, CategoricalDistribution(choices), "its values become text")


def _numeric(parameter: Parameter, values: dict[str, Any]) -> _Column:
    """A range that holds the domain and all values: `extend` may have changed the domain."""
    from optuna.distributions import FloatDistribution, IntDistribution

    domain = parameter.domain
    bounds, step, log = _range(domain)
    low, high = min([bounds[0], *values.values()]), max([bounds[1], *values.values()])
    log = log and low > 0
    remarks = []
    if isinstance(domain, Normal) or (low, high) != bounds:
        remarks.append(f"{domain} becomes {low:.4g} to {high:.4g}")
    if step is not None and (log or not all(_divides(step, value - low) for value in (*values.values(), high))):
        remarks.append(f"{domain} loses its quantum")
        step = None
    whole = isinstance(domain, Integer) and all(isinstance(value, int) for value in values.values())
    distribution: BaseDistribution = FloatDistribution(low, high, log=log, step=step)
    if whole:
        distribution = IntDistribution(int(low), int(high), log=log, step=int(step or 1))
    return _Column(parameter.name, values, distribution, "; ".join(remarks))


def _range(domain: Domain) -> tuple[tuple[float, float], float | None, bool]:
    """(both ends, quantum, whether it is logarithmic) of a numeric domain."""
    match domain:
        case Normal():
            return (domain.quantile(_TAIL), domain.quantile(1 - _TAIL)), None, False
        case Integer(steps=(first, last)):
            return (domain.at(first), domain.at(last)), domain.q, domain.log
        case Float():
            return (float(domain.lower), float(domain.upper)), domain.q, domain.log
    raise NotImplementedError(f"{domain} is not a range")


def _divides(step: float, distance: float) -> bool:
    """As Optuna finds it."""
    return abs(distance / step - round(distance / step)) < 1e-8
