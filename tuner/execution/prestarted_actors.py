"""Processes that Ray has started ahead, for trials."""

from __future__ import annotations

from typing import Any

import ray
from ray.tune.execution.class_cache import _ActorClassCache


class SameEnvironment(_ActorClassCache):  # type: ignore[misc]
    """Ray Tune's, for a Ray whose workers have the environment of trials already (`tuner.execution.local_cluster`).

    Ray Tune gives each trial an environment of its own, so that none takes a process that Ray has started ahead.
    """

    def get(self, trainable_cls: type) -> Any:
        if trainable_cls not in self._cache:
            self._cache[trainable_cls] = ray.remote(trainable_cls)
        return self._cache[trainable_cls]
