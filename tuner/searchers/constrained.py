"""What every search has around it: known good configurations come first, and forbidden ones never start."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tuner.searchers.base import PastTrial, Searcher
from tuner.spec.configuration import Configuration
from tuner.spec.problem import SearchProblem
from tuner.spec.space import Parameter, at

MAX_REJECTIONS = 5
"""Forbidden suggestions in a row after which the last one is repaired: a model may want nothing else."""

_REPAIRS = 100
"""Attempts to repair a suggestion before a configuration is drawn anew."""


class ConstrainedSearcher(Searcher):
    """Gives ``points`` first, then what ``inner`` suggests and the constraints of the space allow.

    ``inner`` learns of each point through `Searcher.register`, and of each forbidden suggestion as a trial that failed.
    After `MAX_REJECTIONS` of those in a row it adopts the last one with as many parameters drawn anew as it takes: the
    best configuration often lies where a constraint is tight.
    """

    def __init__(self, inner: Searcher, task: SearchProblem, points: Sequence[Configuration] = ()) -> None:
        from numpy.random import default_rng

        self._inner = inner
        self._space = task.space
        self._points = list(points)
        self._rng = default_rng([task.seed, MAX_REJECTIONS])  # other draws than those of a searcher with the same seed
        self._names: dict[str, str] = {}
        """Under what id ``inner`` knows a trial whose first suggestion was forbidden: it may allow no id twice."""

    def suggest(self, trial_id: str) -> Configuration | None:
        if self._points:
            return self._register(trial_id, self._points.pop(0))
        name, forbidden = trial_id, Configuration()
        for refusal in range(1, MAX_REJECTIONS + 1):
            suggestion = self._inner.suggest(name)
            if suggestion is None or self._space.allows(suggestion):
                return suggestion
            self._inner.on_end(name, 0, None)
            forbidden = suggestion
            name = self._names[trial_id] = f"{trial_id} after {refusal}"
        return self._register(name, self._repaired(forbidden))

    def register(self, trial_id: str, configuration: Configuration) -> None:
        self._points = [point for point in self._points if point != configuration]
        self._inner.register(trial_id, configuration)

    def on_margins(self, trial_id: str, margins: tuple[float, ...]) -> None:
        self._inner.on_margins(self._names.get(trial_id, trial_id), margins)

    def on_seconds(self, trial_id: str, seconds: float) -> None:
        self._inner.on_seconds(self._names.get(trial_id, trial_id), seconds)

    def on_report(self, trial_id: str, step: int, value: float) -> None:
        self._inner.on_report(self._names.get(trial_id, trial_id), step, value)

    def on_pause(self, trial_id: str, step: int, values: tuple[float, ...]) -> None:
        self._inner.on_pause(self._names.get(trial_id, trial_id), step, values)

    def on_resume(self, trial_id: str) -> None:
        self._inner.on_resume(self._names.get(trial_id, trial_id))

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        self._inner.on_end(self._names.pop(trial_id, trial_id), step, values)

    def learn(self, trial: PastTrial) -> None:
        self._inner.learn(trial)

    def _repaired(self, forbidden: Configuration) -> Configuration:
        """An allowed configuration that differs from ``forbidden`` in a few parameters, or in more where it must."""
        for attempt in range(_REPAIRS):
            candidate = self._mutated(forbidden, share=(attempt + 1) / _REPAIRS)
            if self._space.allows(candidate):
                return candidate
        return self._space.sample(self._rng)

    def _mutated(self, configuration: Configuration, share: float) -> Configuration:
        """``configuration`` with a ``share`` of its parameters drawn anew."""

        def choose(parameter: Parameter) -> Any:
            if self._rng.random() >= share:
                with suppress(KeyError):  # it was inactive
                    return at(configuration, parameter.path)
            return parameter.domain.sample(self._rng)

        return self._space.build(choose)

    def _register(self, name: str, configuration: Configuration) -> Configuration:
        self._inner.register(name, configuration)
        return configuration
