"""The nodes on which trials may start: not where they failed, if there is another node, and not one that is put aside.

If there is no other node, another GPU of the same node will do: see `tuner.execution.placement_groups`.

Each trial runs in a placement group of its own. Here the request for it names the nodes that it must not be on, by the
label that Ray gives every node. Ray keeps idle processes by their request. So a trial with such a request takes no
idle process of another. While such a trial waits, no process is kept idle: it would hold the place for which the trial
waits.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from typing import Any

from ray.air.execution.resources.placement_group import PlacementGroupAcquiredResources
from ray.tune import PlacementGroupFactory
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial as RayTrial

from tuner.execution.actor_hosts import locate_actor
from tuner.execution.failure_classifier import is_of_broken_gpu
from tuner.execution.placement_groups import PlacementGroups
from tuner.execution.recorder import Recorder
from tuner.execution.slots import nodes_by_id, without_places
from tuner.plan.cluster import Node
from tuner.plan.plan import Plan
from tuner.runs.failure import Failure
from tuner.search.node_health import NodeHealth, SickNode

LOOK_EVERY_S = 2.0
"""How often it is asked whether trials that wait for other nodes still have some."""
NODE_ID = "ray.io/node-id"
"""Ray's label of each node, with its id."""


class PlacedTrials(TuneController):  # type: ignore[misc]
    """Ray's control loop, which chooses the nodes that a trial may start on."""

    recorder: Recorder
    plan: Plan

    def __init__(self, **options: Any) -> None:
        self._nodes = NodeHealth()
        self._plain: PlacementGroupFactory | None = None
        """What a trial asks for that may be on any node; None before the first trial."""
        self._usual: PlacementGroupFactory | None = None
        """The request of a trial that has failed nowhere: any node that is not put aside."""
        self._choosy: set[RayTrial] = set()
        """Trials that wait and ask for something else."""
        self._alive: dict[str, Node] = {}
        self._next_look = 0.0
        self._attempts: dict[str, tuple[str, float | None]] = {}
        """Of each trial that runs: its node, and when its attempt started; None: it has reported since."""
        self._held: dict[RayTrial, float] = {}
        """Trials that are tried again later, and when, on the monotonic clock. To Ray they are paused."""
        self._places = PlacementGroups()
        self._gpus_aside: Counter[str] = Counter()
        """Of each node: places whose GPUs failed, and which are kept for good."""
        self._place_of: dict[str, PlacementGroupAcquiredResources] = {}
        """The place of the latest attempt, by trial; of trials that run, and of failed trials that wait."""
        super().__init__(resource_manager_factory=lambda: self._places, **options)

    def on_step_begin(self) -> None:
        super().on_step_begin()
        self._places.sweep()
        now = time.monotonic()
        for trial, due in list(self._held.items()):
            if now >= due:
                del self._held[trial]
                self._set_trial_status(trial, RayTrial.PENDING)
        if now >= self._next_look:
            for trial in list(self._pending_trials if self._nodes.aside else self._choosy):
                if trial.placement_group_factory != self._request(trial):  # the nodes that it waits for are gone
                    self._ask_again(trial)

    # --- what is known of nodes ---

    def _note_start(self, trial: RayTrial) -> None:
        node = self.recorder.hosts.node(trial.temporary_state.ray_actor._actor_id.hex())
        self._attempts[trial.trial_id] = node, time.monotonic()
        if before := self._place_of.pop(trial.trial_id, None):
            self._places.let_go(before)
        if place := self._actor_manager.get_actor_resources(self._trial_to_actor[trial]):
            self._place_of[trial.trial_id] = place

    def _note_report(self, trial: RayTrial) -> None:
        node, since = self._attempts.get(trial.trial_id, ("", None))
        if since is not None:
            self._attempts[trial.trial_id] = node, None
            self._put_aside(self._nodes.reported(trial.trial_id, node))

    def _note_failure(self, trial: RayTrial, exception: BaseException, failure: Failure) -> bool:
        """Returns whether the trial is taken for the cause of the loss of nodes."""
        actor_id = getattr(exception, "actor_id", None)
        unstarted = locate_actor(actor_id).node if actor_id else "", time.monotonic()
        node, since = self._attempts.pop(trial.trial_id, unstarted)
        if not node:
            return False
        seconds = None if since is None else time.monotonic() - since
        self._put_aside(self._nodes.failed(trial.trial_id, node, failure, seconds))
        return failure.kind == "node lost" and self._nodes.lost(trial.trial_id, node)

    def _keep_place(self, trial: RayTrial) -> None:
        """Keeps the GPUs on which the trial failed until it has others, if only its node has any."""
        place, nodes = self._place_of.get(trial.trial_id), self._nodes.failed_on(trial.trial_id)[:1]
        if place is None or not nodes or self._leaves_room({*nodes, *self._nodes.aside}):
            return
        if self._has_other_gpus(nodes[0]):
            self._places.keep(place)

    def _put_gpu_aside(self, trial: RayTrial, failure: Failure) -> None:
        """No other trial gets the GPU that failed under ``trial``, if its node has another one for trials."""
        place, nodes = self._place_of.get(trial.trial_id), self._nodes.failed_on(trial.trial_id)[:1]
        if not is_of_broken_gpu(failure) or self.plan.spec.resources.workers > 1 or place is None or not nodes:
            return
        if not self._has_other_gpus(nodes[0]):
            return
        self._places.keep_for_good(place)
        self._gpus_aside[nodes[0]] += 1
        self._next_look = 0.0
        host = self.recorder.hosts.of_node(nodes[0]) or nodes[0]
        label = self.recorder.results.trial(trial.trial_id).label
        gpus = "the GPU" if self.plan.request["GPU"] == 1 else "the GPUs"
        self.recorder.notify(
            f"{gpus} of trial {label} on node {host} failed ({failure.message}): no trial of this search gets "
            f"{'it' if gpus == 'the GPU' else 'them'} any more"
        )

    def _has_other_gpus(self, node: str) -> bool:
        """Whether a trial takes whole GPUs, and ``node`` has as many again. Of a part of one, Ray gives the same."""
        gpus = self.plan.request.get("GPU", 0.0)
        alive = self._nodes_alive()
        there = alive[node].resources.get("GPU", 0.0) if node in alive else 0.0
        return gpus >= 1 and there >= 2 * gpus * self.plan.spec.resources.workers

    def _forget(self, trial_id: str) -> None:
        """The trial has ended."""
        self._attempts.pop(trial_id, None)
        self._place_of.pop(trial_id, None)

    def _put_aside(self, sick: SickNode | None) -> None:
        if sick is None:
            return
        host = self.recorder.hosts.of_node(sick.node) or sick.node
        told = f"{sick.trials} trials in a row failed on node {host} soon after their start ({sick.words})"
        if not self._leaves_room({*self._nodes.aside, sick.node}):
            self.recorder.notify(f"{told}: it is used nevertheless, as no other node has room for a trial")
            return
        self._nodes.aside.add(sick.node)
        self._usual = self._without(frozenset(self._nodes.aside))
        self.recorder.notify(f"{told}, and not elsewhere: no trial of this search starts there any more")
        self._drop_idle()

    # --- what trials ask for ---

    def add_trial(self, trial: RayTrial) -> None:
        super().add_trial(trial)
        if self._plain is None:
            self._plain = self._usual = trial.placement_group_factory
        if self._nodes.aside and trial.status == RayTrial.PENDING:
            self._set_trial_status(trial, RayTrial.PAUSED)
            self._set_trial_status(trial, RayTrial.PENDING)

    def _set_trial_status(self, trial: RayTrial, status: str) -> None:
        self._choosy.discard(trial)
        if status == RayTrial.PENDING != trial.status:
            trial.placement_group_factory = self._request(trial)
            if trial.placement_group_factory is not self._usual:
                self._choosy.add(trial)
                self._drop_idle()
        super()._set_trial_status(trial, status)

    def _request(self, trial: RayTrial) -> PlacementGroupFactory:
        """The request of the trial: any node except the avoided ones, if another node has room for it."""
        choices = self._nodes.avoided(trial.trial_id)
        avoided = next((choice for choice in choices if self._leaves_room(choice)), frozenset())
        return self._usual if avoided == self._nodes.aside else self._without(avoided)

    def _without(self, avoided: frozenset[str]) -> PlacementGroupFactory:
        assert self._plain is not None
        if not avoided:
            return self._plain
        bundles, selector = self._plain.bundles, {NODE_ID: f"!in({','.join(sorted(avoided))})"}
        return PlacementGroupFactory(
            bundles, strategy=self._plain.strategy, bundle_label_selector=[selector] * len(bundles)
        )

    def _leaves_room(self, avoided: Collection[str]) -> bool:
        """Whether a trial fits on the nodes that are alive without ``avoided``."""
        return self.plan.fits_on(tuple(node for node_id, node in self._nodes_alive().items() if node_id not in avoided))

    def _nodes_alive(self) -> dict[str, Node]:
        """By Ray's id, as of a moment ago."""
        if time.monotonic() >= self._next_look:
            self._alive = without_places(nodes_by_id(), self._gpus_aside, self.plan.request)
            self._next_look = time.monotonic() + LOOK_EVERY_S
        return self._alive

    def _ask_again(self, trial: RayTrial) -> None:
        """Lets a trial that waits ask for what it may have now."""
        if self._take_back(trial):
            self._set_trial_status(trial, RayTrial.PENDING)

    def _take_back(self, trial: RayTrial) -> bool:
        """Takes back what a trial that waits has asked for; False if it has its place, and its process is starting."""
        asked = self._trial_to_actor.get(trial)
        if asked in self._actor_manager.live_actors:
            return False
        if asked is not None:
            self._trial_to_actor.pop(trial)
            self._actor_to_trial.pop(asked)
            self._unstage_trial_with_resources(trial)
            self._remove_actor(asked)
        self._set_trial_status(trial, RayTrial.PAUSED)
        return True

    # --- what waits for other nodes, and for whom ---

    def _beside(self) -> int:
        """How many trials wait for other nodes while a new trial may start in their place.

        Those that failed on a node that is under suspicion keep their place: it would draw one trial after the other.
        """
        waiting = (self._nodes.failed_on(trial.trial_id)[:1] for trial in self._choosy)
        return sum(bool(nodes) and not self._nodes.is_suspected(nodes[0]) for nodes in waiting)

    def _drop_idle(self) -> None:
        """Ends the idle processes, which hold places."""
        super()._cleanup_cached_actors(force_all=True)

    def _maybe_cache_trial_actor(self, trial: RayTrial) -> bool:
        if self._choosy or trial.placement_group_factory != self._usual:
            return False
        return bool(super()._maybe_cache_trial_actor(trial))
