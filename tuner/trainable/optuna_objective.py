"""An Optuna objective as a trainable: its trial suggests what the configuration holds."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tuner.errors import InputError, did_you_mean
from tuner.spec.configuration import flat
from tuner.trainable.adapter import Adapter, KeyPath
from tuner.trainable.optuna_domains import as_text, contains
from tuner.trainable.optuna_space import suggestions
from tuner.trainable.optuna_trial import trial_class
from tuner.trainable.returned import objective_names

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


def is_objective(function: Any) -> bool:
    """Whether ``function`` takes an ``optuna.Trial``: its first argument is annotated so, or called ``trial``.

    Raises what its annotations raise.
    """
    if isinstance(function, type) or not callable(function):
        return False
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None:
        return False
    if first.annotation is first.empty:
        return first.name == "trial"
    text = first.annotation if isinstance(first.annotation, str) else getattr(first.annotation, "__name__", "")
    return text.rpartition(".")[2].strip("'\"") in ("Trial", "BaseTrial", "FrozenTrial")


@dataclass(frozen=True)
class Objective(Adapter):
    """A function that takes an Optuna trial, called with a configuration."""

    function: Callable[[Any], Any]
    metrics: tuple[str, ...] = ()
    """The objectives of the experiment."""

    def __call__(self, config: Mapping[str, Any]) -> None:
        """Calls the objective, and reports what it reports and returns.

        Raises what the objective raises, and ObjectiveError.
        """
        from optuna import TrialPruned

        trial = trial_class()(dict(flat(config)), config, self.metrics)
        try:
            value = self.function(trial)
        except TrialPruned:
            if not trial.reported:
                raise
            return  # the last report holds, as in Optuna
        if value is not None:
            trial.finish(value)

    def reporting(self, required: Sequence[tuple[str, str]]) -> Objective:
        """The same, where every report must hold the ``required`` metrics, each with its key in the experiment."""
        return replace(self, metrics=objective_names(required))

    def config_problems(self, config: Mapping[str, Any]) -> list[tuple[KeyPath, str]]:
        """Reasons in its source to refuse ``config``: (path of the parameter, message)."""
        if self._suggestions is None:
            return []
        values, found = dict(flat(config)), []
        for name in values:
            if name not in self._suggestions:
                hint = did_you_mean(name, list(self._suggestions))
                found.append((tuple(name.split(".")), f"the objective suggests no such parameter; {hint}"))
        for name, distribution in self._suggestions.items():
            if name not in values:
                found.append(((name,), f"the objective suggests it: add {name}: {as_text(distribution)}"))
            elif not contains(distribution, values[name]):
                message = f"the objective suggests it from {as_text(distribution)}, so it cannot be {values[name]!r}"
                found.append((tuple(name.split(".")), message))
        return found

    @functools.cached_property
    def _suggestions(self) -> dict[str, BaseDistribution] | None:
        """None if they are unknown until it runs."""
        try:
            return suggestions(self.function)
        except InputError:
            return None
