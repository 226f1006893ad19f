"""A searcher of ours as Ray Tune's ``Searcher``, and the state of a search that Ray saves with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ray import cloudpickle
from ray.tune.search import Searcher as RaySearcher

from tuner.schedulers.base import Scheduler
from tuner.searchers.base import Searcher
from tuner.spec.objective import Objective


@dataclass
class Course:
    """What a search has learned so far. Saved in one piece, so that its parts agree when it is resumed."""

    searcher: Searcher
    scheduler: Scheduler | None
    """None where Ray's own scheduler decides."""
    objectives: tuple[Objective, ...]
    step_name: str
    """The reported number that counts a trial's progress."""
    last: dict[str, tuple[int, tuple[float, ...]]] = field(default_factory=dict)
    """(step, objectives) of the latest report of each trial that has not ended."""
    paused: set[str] = field(default_factory=set)
    """Trials that wait at their rung."""

    def reading(self, result: dict[str, Any]) -> tuple[int, tuple[float, ...]]:
        """(step, objectives) of a report."""
        return int(result[self.step_name]), tuple(float(result[o.metric]) for o in self.objectives)

    def observe(self, trial_id: str, result: dict[str, Any]) -> None:
        """Tells the searcher of a report, once."""
        reading = self.reading(result)
        if self.last.get(trial_id) != reading:
            self.last[trial_id] = reading
            self.searcher.observe(trial_id, reading[0], reading[1][0])

    def end(self, trial_id: str, failed: bool) -> None:
        """Tells the searcher that a trial ended."""
        step, values = self.last.pop(trial_id, (0, None))
        self.searcher.end(trial_id, *((0, None) if failed else (step, values)))


class Suggestions(RaySearcher):  # type: ignore[misc]
    """Passes Ray's questions and news on to a searcher of ours."""

    def __init__(self, course: Course) -> None:
        super().__init__(metric=course.objectives[0].metric, mode=course.objectives[0].mode)
        self.course = course

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        config = self.course.searcher.suggest(trial_id)
        return RaySearcher.FINISHED if config is None else config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.course.observe(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if result and all(objective.metric in result for objective in self.course.objectives):
            self.course.observe(trial_id, result)  # Ray keeps the report at which a trial is stopped for this call
        self.course.end(trial_id, failed=error)

    def save(self, checkpoint_path: str) -> None:
        with open(checkpoint_path, "wb") as file:
            cloudpickle.dump(self.course, file)  # a param_space may hold lambdas

    def restore(self, checkpoint_path: str) -> None:
        with open(checkpoint_path, "rb") as file:
            self.course = cloudpickle.load(file)
