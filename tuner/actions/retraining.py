"""The experiment that trains the best configurations of a search again, each with the same fresh seeds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.errors import InputError
from tuner.experiment.reader import Experiment, load_experiment
from tuner.plan.compatibility import changes_configurations
from tuner.runs.feasibility import no_winner
from tuner.runs.provenance import experiment_of, pickles_of, roots, trainable_of
from tuner.runs.results import ResultSet
from tuner.runs.trial import Trial
from tuner.spec.configuration import Configuration
from tuner.spec.space import Choice, Condition, Parameter, Space, at, to_yaml
from tuner.spec.space import Path as KeyPath
from tuner.spec.values import contains, value_key
from tuner.trainable.trainable import Trainable

SEED = "seed"
"""The trainable's parameter that everything random in it comes from."""


MOST_TRIALS = 1000
"""Trainings of one confirmation: each stands in its experiment file with its configuration."""


@dataclass(frozen=True)
class Retraining:
    """Which configurations are trained again, and how."""

    candidates: tuple[Trial, ...]
    """The best trials of the search, best first, each with another configuration."""
    seeds: tuple[int, ...]
    experiment: Experiment
    """Its trials: all candidates with the first seed, then all with the second, and so on."""

    def candidate(self, trial: Trial) -> Trial | None:
        """Whose configuration ``trial`` of the experiment has."""
        own = value_key(_without_seed(trial.config))
        return next((c for c in self.candidates if value_key(_without_seed(c.config)) == own), None)


def retraining(results: ResultSet, top: int, seeds: int) -> Retraining:
    """Trains the best ``top`` configurations of ``results`` again, each with the same ``seeds`` seeds.

    Each runs to the search's ``max_t``, or as long as its function does, and none is stopped early. The seeds are the
    smallest numbers from 0 on that the search did not use. Raises InputError if that cannot be done.
    """
    if top < 1 or seeds < 2:
        raise InputError(f"top {top}, seeds {seeds}: give at least 1 and 2; one value has no interval")
    _check_run(results)
    trainable = trainable_of(results)
    candidates = _candidates(results, top)
    if len(candidates) * seeds > MOST_TRIALS:
        raise InputError(
            f"top {len(candidates)}, seeds {seeds}: {len(candidates) * seeds:,} trainings are more than {MOST_TRIALS:,}"
        )
    repeat = results.spec.get("repeat") or {}
    over_seeds = repeat.get("over") == SEED
    numbers = _fresh(results, trainable, candidates, seeds, range(repeat["times"]) if over_seeds else ())
    spec, configs = results.spec, [_without_seed(trial.config) for trial in candidates]
    try:
        space = to_yaml(_space(experiment_of(results).spec.search_space, configs, numbers))
    except ValueError as error:
        raise InputError(f"{results.folder.location}: its configurations cannot be written as YAML: {error}") from None
    resources = dict(results.section("resources"))
    if over_seeds and repeat.get("at_once"):
        resources["fused"] = repeat["times"]
    points = [{**config, SEED: seed} for seed in numbers for config in configs]
    if resources.get("fused", 1) > 1:  # those that come together are of one shape
        points = [{**config, SEED: seed} for config in configs for seed in numbers]
    changed: dict[str, Any] = {
        "params": _without_seed(results.section("params")),
        "search_space": space,
        "constraints": [],
        "resources": resources,
        "search": {"kind": "random", "seed": 0, "points_to_evaluate": points},
        "repeat": None if over_seeds or not repeat else repeat,
        "scheduler": {"kind": "fifo"} if over_seeds else _scheduler(results.section("scheduler")),
        "budget": {"trials": len(points)},
        "checkpoints": {**results.section("checkpoints"), "keep_trials": len(points)},
    }
    return Retraining(
        candidates, numbers, load_experiment({**spec, **changed}, roots=roots(results), pickles=pickles_of(results))
    )


def _check_run(results: ResultSet) -> None:
    shown = results.folder.location
    if results.provenance.get("interrupted") is not False:
        raise InputError(
            f"{shown} has not come to its end: confirm it when it has (python -m tuner status {results.folder.quoted})"
        )
    if changes_configurations(kind := results.section("scheduler").get("kind", "")):
        raise InputError(
            f"{shown}: {kind} changed the configurations of its trials on the way, so that there is none to train "
            f"again: run the search itself again with another search.seed"
        )
    if not results.front:
        raise InputError(f"{shown}: {no_winner(results) or 'no trial has a result'}")


def _candidates(results: ResultSet, top: int) -> tuple[Trial, ...]:
    """Of equal configurations (but for their seed) the best one."""
    different: dict[Any, Trial] = {}
    for trial in results.rank(trial for trial in results.trials if trial.best and results.is_feasible(trial.best)):
        different.setdefault(value_key(_without_seed(trial.config)), trial)
    return tuple(different.values())[:top]


def _fresh(
    results: ResultSet, trainable: Trainable, candidates: Sequence[Trial], count: int, repeated: Sequence[int]
) -> tuple[int, ...]:
    """``repeated``: the seeds of the repetitions of a trial."""
    known = [results.full_config(trial) for trial in results.trials]
    if trainable.parameters is None and not repeated and not any(SEED in config for config in known):
        raise InputError(
            f"{trainable.reference} takes a plain dict, and the run gave it no {SEED!r}: fresh seeds would change "
            f"nothing; read config[{SEED!r}] there, and write {SEED}: 0 into params"
        )
    if trainable.parameters is not None and SEED not in trainable.parameters:
        raise InputError(
            f"{trainable.reference} takes no parameter {SEED!r}: fresh seeds would change nothing; add {SEED}: int = 0 "
            f"to its Config, and seed with it all that is random (as trainables/digits.py does)"
        )
    used = {config[SEED] for config in known if SEED in config} | set(repeated)
    used |= {getattr(trainable.make_config(results.full_config(trial)), SEED, None) for trial in candidates}
    return tuple(itertools.islice((seed for seed in itertools.count() if seed not in used), count))


def _without_seed(config: Configuration) -> Configuration:
    return {name: value for name, value in config.items() if name != SEED}


def _scheduler(scheduler: dict[str, Any]) -> dict[str, Any]:
    """Lets every trial run to ``max_t``: ASHA whose first rung is its last compares nobody."""
    if "max_t" not in scheduler:
        return {"kind": "fifo"}
    options = ("time_attr", "max_t", "stop_last_trials")
    kept: dict[str, Any] = {name: scheduler[name] for name in options if name in scheduler}
    return {"kind": "asha", "grace_period": scheduler["max_t"], **kept}


def _space(space: Space, configs: Sequence[Configuration], seeds: Sequence[int]) -> Space:
    """Of each parameter the values that ``configs`` have, and the seeds; conditions as in ``space``."""
    chosen: dict[KeyPath, Parameter] = {}
    for parameter in space.parameters:
        path = min((path for path, _ in space.sequences if parameter.path[: len(path)] == path), default=parameter.path)
        values = _values(configs, path)
        if values and path != (SEED,):
            when = tuple(_narrowed(condition, configs) for condition in parameter.when)
            chosen.setdefault(path, Parameter(path, Choice(values), when))
    return Space((*chosen.values(), Parameter((SEED,), Choice(tuple(seeds)))))


def _narrowed(condition: Condition, configs: Sequence[Configuration]) -> Condition:
    there = _values(configs, condition.path)
    return Condition(condition.path, tuple(value for value in condition.values if contains(there, value)))


def _values(configs: Sequence[Configuration], path: KeyPath) -> tuple[Any, ...]:
    """The different values at ``path``, where it is active."""
    found: dict[Any, Any] = {}
    for config in configs:
        try:
            value = at(config, path)
        except KeyError:
            continue
        found.setdefault(value_key(value), value)
    return tuple(found.values())
