"""A searcher of ours as Ray Tune's ``Searcher``."""

from __future__ import annotations

from typing import Any

from ray import cloudpickle
from ray.tune.search import Searcher as RaySearcher

from tuner.searchers.base import Searcher


class Suggestions(RaySearcher):  # type: ignore[misc]
    """Passes Ray's questions and news on to a searcher of ours."""

    def __init__(self, searcher: Searcher, metric: str, mode: str, step_name: str) -> None:
        super().__init__(metric=metric, mode=mode)
        self.searcher_of_ours = searcher
        self._step_name = step_name

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        config = self.searcher_of_ours.suggest(trial_id)
        return RaySearcher.FINISHED if config is None else config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher_of_ours.observe(trial_id, int(result[self._step_name]), float(result[self.metric]))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if error or not result or self.metric not in result:
            self.searcher_of_ours.end(trial_id, 0, None)
        else:
            self.searcher_of_ours.end(trial_id, int(result[self._step_name]), float(result[self.metric]))

    def save(self, checkpoint_path: str) -> None:
        with open(checkpoint_path, "wb") as file:
            cloudpickle.dump(self.searcher_of_ours, file)  # a param_space may hold lambdas

    def restore(self, checkpoint_path: str) -> None:
        with open(checkpoint_path, "rb") as file:
            self.searcher_of_ours = cloudpickle.load(file)
