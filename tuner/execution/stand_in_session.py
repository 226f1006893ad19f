"""A session that stands in place of Ray's, in a process that Ray Tune has started no trial in.

``ray.tune.report``, ``get_checkpoint`` and ``get_context`` ask one module of Ray for the session of the process. Ray's
own cannot be made without a node and a storage. Whatever way the user's code imported these names, they find the one
that stands there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ray.train._internal import session as ray_session

from tuner.runs.results import RAY


@dataclass
class StandInSession:
    """What Ray's functions for trials find: the part of Ray's ``_TrainSession`` that they use.

    It reports nothing, as in a process that trains the model of a trial with others, and is not the first.
    """

    trial_id: str
    trial_resources: Any
    trial_dir: str
    loaded_checkpoint: Any = None
    experiment_name: str = RAY
    run_id: None = None
    world_rank: None = None
    local_rank: None = None
    node_rank: None = None
    world_size: None = None
    local_world_size: None = None
    _state: dict[str, Any] = field(default_factory=dict)

    @property
    def trial_name(self) -> str:
        return f"Trial_{self.trial_id}"

    def get_state(self, key: str) -> Any:
        return self._state.get(key)

    def set_state(self, key: str, value: Any) -> None:
        self._state[key] = value

    def report(self, metrics: dict[str, Any], checkpoint: Any = None) -> None:
        """As ``ray.tune.report``."""


@contextlib.contextmanager
def in_place_of_rays(session: StandInSession) -> Iterator[None]:
    """Within: Ray's functions find ``session``."""
    before = ray_session._session
    ray_session._session = session
    try:
        yield
    finally:
        ray_session._session = before
