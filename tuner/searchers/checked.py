"""A third party's searcher: it is named where it raises, or suggests what the space does not hold."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tuner.errors import InputError, blaming
from tuner.searchers.base import PastTrial, Searcher, SearchSpec
from tuner.spec.configuration import Configuration
from tuner.spec.document import dotted
from tuner.spec.problem import SearchProblem


def checked(spec: SearchSpec, task: SearchProblem) -> Searcher:
    """The searcher that ``spec`` builds, with checks around it."""
    name = f"search {type(spec).__qualname__}"
    with blaming(name):
        built = spec.build(task)
    if not isinstance(built, Searcher):
        raise InputError(f"{name}: build must return a tuner.searchers.Searcher, not {type(built).__name__}")
    return Checked(built, task, name)


class Checked(Searcher):
    """Passes everything on to ``inner``."""

    def __init__(self, inner: Searcher, task: SearchProblem, name: str) -> None:
        self._inner, self._space, self._name = inner, task.space, name

    def _blaming(self) -> AbstractContextManager[None]:
        return blaming(self._name)

    def suggest(self, trial_id: str) -> Configuration | None:
        with self._blaming():
            suggested = self._inner.suggest(trial_id)
        if suggested is None:
            return None
        if not isinstance(suggested, dict):
            raise InputError(f"{self._name}: suggest must return a dict or None, not {type(suggested).__name__}")
        wrong = [(path, text) for path, text in self._space.violations(suggested) if path]  # constraints have no path
        if wrong:
            path, text = wrong[0]
            raise InputError(f"{self._name} suggested no point of the search space: {dotted(path)}: {text}")
        return suggested

    def register(self, trial_id: str, configuration: Configuration) -> None:
        with self._blaming():
            self._inner.register(trial_id, configuration)

    def on_margins(self, trial_id: str, margins: tuple[float, ...]) -> None:
        with self._blaming():
            self._inner.on_margins(trial_id, margins)

    def on_seconds(self, trial_id: str, seconds: float) -> None:
        with self._blaming():
            self._inner.on_seconds(trial_id, seconds)

    def on_report(self, trial_id: str, step: int, value: float) -> None:
        with self._blaming():
            self._inner.on_report(trial_id, step, value)

    def on_pause(self, trial_id: str, step: int, values: tuple[float, ...]) -> None:
        with self._blaming():
            self._inner.on_pause(trial_id, step, values)

    def on_resume(self, trial_id: str) -> None:
        with self._blaming():
            self._inner.on_resume(trial_id)

    def on_end(self, trial_id: str, step: int, values: tuple[float, ...] | None) -> None:
        with self._blaming():
            self._inner.on_end(trial_id, step, values)

    def learn(self, trial: PastTrial) -> None:
        with self._blaming():
            self._inner.learn(trial)
