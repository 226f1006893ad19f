"""Figures of runs, and of a queue of searches, for Prometheus: the collector and its route."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tuner.errors import EnvironmentFailure
from tuner.live.families import OF_QUEUE, OF_RUNS, QueueNow
from tuner.live.figures import FollowedRuns, RunFigures
from tuner.live.queue_source import Queue
from tuner.storage.folder import RunFolder

UNREADABLE_RUNS, STORAGE_UP = "tuner_unreadable_runs", "tuner_storage_up"


class RunCollector(Collector):
    """The metrics of runs, and of a queue.

    Example:
        >>> from tuner.live.metrics import RunCollector
        >>> from tuner.runs.loading import runs
        >>> from tuner.storage.folder import RunFolder
        >>> collector = RunCollector(lambda: runs(RunFolder.at("runs")))
        >>> [metric.name for metric in collector.collect()][:3]
        ['tuner_storage_up', 'tuner_unreadable_runs', 'tuner_run_state']
    """

    def __init__(
        self,
        find: Callable[[], Iterable[RunFolder]],
        queue: Queue | None = None,
        followed: FollowedRuns | None = None,
    ) -> None:
        """``find``: the run folders that there are, called at each scrape. ``followed``: what others read them with."""
        self._find = find
        self._queue = queue
        self._followed = followed or FollowedRuns()

    def collect(self) -> Iterator[Metric]:
        """All metrics, also those without a sample. Reads what is new in the journals."""
        is_up, figures, unreadable = self._read()
        yield GaugeMetricFamily(STORAGE_UP, "1 if the storage of the runs can be listed, else 0.", value=is_up)
        yield GaugeMetricFamily(UNREADABLE_RUNS, "Runs whose folder or journal cannot be read.", value=unreadable)
        yield from (family.metric(figures) for family in OF_RUNS)
        if self._queue is not None:
            now = QueueNow(self._queue.entries(), self._queue.status(), time.time())
            yield from (queue_family.metric([now]) for queue_family in OF_QUEUE)

    def _read(self) -> tuple[bool, Sequence[RunFigures], int]:
        try:
            folders = list(self._find())
        except (OSError, EnvironmentFailure):
            return False, [], 0
        return True, *self._followed.read(folders)


def router(
    find: Callable[[], Iterable[RunFolder]], queue: Queue | None = None, followed: FollowedRuns | None = None
) -> APIRouter:
    """The route ``/metrics``, in the format that the client asks for (text, or OpenMetrics).

    Args:
        find: The run folders that there are, called at each scrape.
        queue: Of a service.
        followed: The reader that others use too; None: one of its own.

    Returns:
        A router to be included in an app. It checks nobody: the app does.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RunCollector(find, queue, followed))
    routes = APIRouter()

    @routes.get("/metrics", response_class=Response)
    def metrics(request: Request) -> Response:
        """Metrics of searches for Prometheus."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": content_type})

    return routes
