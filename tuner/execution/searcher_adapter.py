"""A searcher of ours as Ray Tune's ``Searcher``."""

from __future__ import annotations

from typing import Any

from ray.tune.search import Searcher as RaySearcher

from tuner.search.state import SearchState


class SearcherAdapter(RaySearcher):  # type: ignore[misc]
    """Passes Ray's question for a configuration on; all news reach the state through `tuner.execution.recorder`."""

    def __init__(self, state: SearchState) -> None:
        super().__init__(metric=state.objectives[0].metric, mode=state.objectives[0].mode)
        self._state = state

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        config = self._state.suggest(trial_id)
        return RaySearcher.FINISHED if config is None else config

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None: ...

    def save(self, checkpoint_path: str) -> None: ...

    def restore(self, checkpoint_path: str) -> None: ...
