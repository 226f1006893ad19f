"""Trials without processes, so that hundreds of searches on the real controller and recorder fit into minutes.

What stands in is the far side of Ray alone: the processes that its actor manager starts. Each trial's function is
``score = -(x - 0.3)² - 1 / epoch``, with a checkpoint at every report, from which it continues.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ray.air.execution._internal.tracked_actor import TrackedActor
from ray.exceptions import RayTaskError
from ray.train._internal.session import _TrainingResult
from ray.tune import Checkpoint
from ray.tune.result import (
    DONE,
    RESULT_DUPLICATE,
    SHOULD_CHECKPOINT,
    TIME_TOTAL_S,
    TIMESTAMP,
    TRAINING_ITERATION,
)

from tuner.execution.failure_classifier import DamagedCheckpoint
from tuner.execution.retrying_controller import ActorManager
from tuner.storage.folder import RunFolder
from tuner.storage.manifest import contents, find_damage, seal

EPOCHS = 9


class Trial:
    """What a trial's process does, at once."""

    def __init__(self, config: dict[str, Any], storage: Any, **_: Any) -> None:
        self.reset(config, storage)

    def reset(self, config: dict[str, Any], storage: Any, **_: Any) -> bool:
        self.x, self.storage = config["x"], storage
        self.epoch, self.reports, self.last = 0, 0, _TrainingResult(None, {})
        self.attempt = uuid.uuid4().hex[:8]
        return True

    def restore(self, result: _TrainingResult) -> None:
        path = result.checkpoint.path
        if problem := find_damage(RunFolder(result.checkpoint.filesystem, path, path)):  # as a trial's process does
            raise DamagedCheckpoint(problem)
        with result.checkpoint.filesystem.open_input_stream(f"{result.checkpoint.path}/state.json") as stream:
            self.epoch = json.loads(stream.read())
        self.reports = result.metrics[TRAINING_ITERATION]
        self.last = result

    def next_reports(self, seconds: float) -> list[dict[str, Any]]:
        if self.epoch == EPOCHS:
            return [{**self.last.metrics, RESULT_DUPLICATE: True, DONE: True, SHOULD_CHECKPOINT: False}]
        self.epoch, self.reports = self.epoch + 1, self.reports + 1
        folder = f"checkpoint_{self.reports:06}_{self.attempt}"  # as `tuner.execution.attempt_storage` names it
        place = RunFolder(self.storage.storage_filesystem, f"{self.storage.trial_fs_path}/{folder}", folder)
        place.filesystem.create_dir(place.path)
        place.write("state.json", json.dumps(self.epoch).encode())
        seal(place, contents(place))
        metrics = {
            "epoch": self.epoch,
            "score": -((self.x - 0.3) ** 2) - 1 / self.epoch,
            TRAINING_ITERATION: self.reports,
            TIME_TOTAL_S: float(self.reports),
            TIMESTAMP: 0,
            DONE: False,
            SHOULD_CHECKPOINT: True,
            "checkpoint_dir_name": folder,
        }
        self.last = _TrainingResult(Checkpoint(place.path, place.filesystem), metrics)
        return [dict(metrics)]

    def save(self) -> _TrainingResult:
        return self.last

    def stop(self) -> None: ...


class Handle:
    """What Ray's loop takes for an actor."""

    _actor_id = bytes(16)

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.get_auto_filled_metrics = SimpleNamespace(remote=dict)


class Actors(ActorManager):  # type: ignore[misc]
    """Ray's actor manager with `Trial` in place of processes; what happens comes in the order in which it was asked."""

    SLOTS = 1

    def __init__(self, resource_manager: Any) -> None:
        super().__init__(resource_manager)
        self._ids = itertools.count()
        self._happening: deque[tuple[TrackedActor | None, Callable[[], None]]] = deque()

    def add_actor(self, cls: Any, kwargs: Any, resource_request: Any, **callbacks: Any) -> TrackedActor:
        actor = TrackedActor(next(self._ids), **callbacks)
        self._pending_actors_to_attrs[actor] = cls, kwargs, resource_request
        return actor

    def next(self, timeout: float | None = None) -> bool:
        live = self._live_actors_to_ray_actors_resources
        for actor in list(self._pending_actors_to_attrs)[: self.SLOTS - len(live)]:
            _, kwargs, _ = self._pending_actors_to_attrs.pop(actor)
            handle = Handle(Trial(**kwargs))
            live[actor] = handle, None
            self._happening.append((actor, lambda actor=actor: actor._on_start(actor)))  # type: ignore[misc]
        if not self._happening:
            return False
        self._happening.popleft()[1]()
        return True

    def schedule_actor_task(
        self,
        tracked_actor: TrackedActor,
        method_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        on_result: Callable[..., None] | None = None,
        on_error: Callable[..., None] | None = None,
        _return_future: bool = False,
    ) -> None:
        if tracked_actor not in self._live_actors_to_ray_actors_resources:  # it is stopped before it started
            return
        handle, _ = self._live_actors_to_ray_actors_resources[tracked_actor]

        def act() -> None:
            try:
                found = getattr(handle.trial, method_name)(*(args or ()), **(kwargs or {}))
            except DamagedCheckpoint as error:
                assert on_error is not None
                on_error(tracked_actor, RayTaskError(method_name, "", error))
                return
            if on_result:
                on_result(tracked_actor, found)

        self._happening.append((tracked_actor, act))

    def remove_actor(self, tracked_actor: TrackedActor, kill: bool = False, stop_future: Any = None) -> bool:
        if self._pending_actors_to_attrs.pop(tracked_actor, None):
            return False

        def gone() -> None:
            self._live_actors_to_ray_actors_resources.pop(tracked_actor, None)
            if tracked_actor._on_stop:
                tracked_actor._on_stop(tracked_actor)

        self._happening.append((None, gone))
        return True

    def clear_actor_task_futures(self, tracked_actor: TrackedActor) -> None:
        self._happening = deque(item for item in self._happening if item[0] is not tracked_actor)

    def get_live_actors_resources(self) -> list[Any]:
        return []

    def cleanup(self) -> None:
        self._happening.clear()
