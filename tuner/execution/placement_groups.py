"""The placement groups of trials; that of an attempt that failed is kept until the next attempt has its own.

That of a GPU that failed is kept for good: so no other trial gets that GPU.

Ray gives a placement group those GPUs of a node that are free, the lowest first, and lets a driver neither choose nor
see which. The GPU on which a trial failed is free at once, and so it would be the next one of the same trial too.
"""

from __future__ import annotations

import math
import time

from ray.air.execution import PlacementGroupResourceManager
from ray.air.execution.resources.placement_group import PlacementGroupAcquiredResources
from ray.util.placement_group import PlacementGroup

KEEP_S = 60.0
"""How long the GPUs of an attempt that failed are idle at most, while all other ones of the node are in use."""


class PlacementGroups(PlacementGroupResourceManager):  # type: ignore[misc]
    """Ray's, which frees a placement group when `sweep` is called, and not while it is kept."""

    def __init__(self, update_interval_s: float = 0.1) -> None:
        super().__init__(update_interval_s)
        self._kept: dict[PlacementGroup, float] = {}
        """Until when, on the monotonic clock."""
        self._left: dict[PlacementGroup, PlacementGroupAcquiredResources] = {}
        """Those whose processes have ended."""

    def keep(self, place: PlacementGroupAcquiredResources) -> None:
        """Does not free it for `KEEP_S`, whether its process has ended or is about to."""
        self._kept.setdefault(place.placement_group, time.monotonic() + KEEP_S)

    def keep_for_good(self, place: PlacementGroupAcquiredResources) -> None:
        """Does not free it while the search runs, as its GPU has failed."""
        self._kept[place.placement_group] = math.inf

    def let_go(self, place: PlacementGroupAcquiredResources) -> None:
        """It is kept no longer, unless it is kept for good."""
        if self._kept.get(place.placement_group) != math.inf:
            self._kept.pop(place.placement_group, None)

    def free_resources(self, acquired_resource: PlacementGroupAcquiredResources) -> None:
        """Its process has ended. Ray's actor manager calls it before it tells the reason."""
        self._left[acquired_resource.placement_group] = acquired_resource

    def sweep(self) -> None:
        """Frees what processes left and nobody keeps."""
        for group in list(self._left):
            if time.monotonic() >= self._kept.get(group, 0.0):
                self._kept.pop(group, None)
                super().free_resources(self._left.pop(group))

    @property
    def kept(self) -> int:
        """How many are kept for a trial though their processes have ended."""
        return sum(self._kept.get(group, math.inf) != math.inf for group in self._left)
