"""The cluster of a queue, as its dashboard answers: well, not at all, or with something else."""

from __future__ import annotations

import contextlib
import http.server
import json
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.execution.monitor_process import monitor_process
from tuner.errors import EnvironmentFailure
from tuner.execution import autoscaler
from tuner.jobs.record import Job, Submitter
from tuner.service import cluster
from tuner.service.cluster import Capacity, JobView, RayCluster

VERSION = {"version": "1", "ray_version": "2.60.0", "ray_commit": "", "session_name": ""}
JOB = {"type": "SUBMISSION", "submission_id": "a", "status": "RUNNING", "entrypoint": "x", "message": "is\nrunning"}
NODES = [{"resources_total": {"GPU": 4.0, "CPU": 8.0}}, {"resources_total": {"CPU": 2.0}}, {"resources_total": None}]


def nodes(found: Any) -> dict[str, Any]:
    return {"result": True, "msg": "", "data": {"result": {"result": found}}}


class Dashboard:
    """Answers paths as it is told: with JSON, with a status and text, or not."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"/api/version": VERSION, "/api/jobs/": [JOB], "/api/v0/nodes": nodes(NODES)}
        self.answers["/api/packages/"] = {}
        self.hangs_at: dict[str, int] = {}
        """Paths, and how often each is answered before."""
        self.asked: list[str] = []
        self.over = threading.Event()

    @contextlib.contextmanager
    def listening(self) -> Iterator[str]:
        dashboard = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                dashboard.asked.append(path)
                if dashboard.asked.count(path) > dashboard.hangs_at.get(path, math.inf):
                    dashboard.over.wait(60)
                    return
                if path.startswith("/api/packages/"):  # it has all code
                    path = "/api/packages/"
                answer = dashboard.answers.get(path, (404, "no such page"))
                status, text = answer if isinstance(answer, tuple) else (200, json.dumps(answer))
                self.send_response(status)
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(text.encode())

            do_POST = do_PUT = do_GET

            def log_message(self, *arguments: Any) -> None: ...

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            self.over.set()
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.fixture
def dashboard() -> Dashboard:
    return Dashboard()


@pytest.fixture
def ray_cluster(dashboard: Dashboard) -> Iterator[RayCluster]:
    with dashboard.listening() as address:
        yield RayCluster(address)


def test_its_size_is_the_sum_over_its_nodes(ray_cluster):
    assert ray_cluster.capacity() == Capacity(gpus=4.0, cpus=10.0)


AUTOSCALED = """
max_workers: 3
head_node_type: head
available_node_types:
  head: {resources: {CPU: 4}}
  workers: {resources: {CPU: 8, GPU: 2}}
"""


def test_its_autoscaler_is_known_and_looked_up_again_after_an_end(dashboard, ray_cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(autoscaler, "_MONITORS", ("mine.py",))  # other tests may have a Ray meanwhile
    grown = Capacity(gpus=6.0, cpus=24.0)
    with monitor_process(tmp_path, AUTOSCALED, "mine.py"):
        assert ray_cluster.capacity() == Capacity(gpus=4.0, cpus=10.0, autoscaled=grown)
    assert ray_cluster.capacity().autoscaled == grown  # it is looked up once
    dashboard.answers["/api/v0/nodes"] = (500, "")
    with pytest.raises(EnvironmentFailure):
        ray_cluster.capacity()
    dashboard.answers["/api/v0/nodes"] = nodes(NODES)
    assert ray_cluster.capacity().autoscaled is None


def test_jobs_have_their_ids(dashboard, ray_cluster):
    dashboard.answers["/api/jobs/"] = [JOB, {**JOB, "submission_id": None, "type": "DRIVER"}]

    assert ray_cluster.jobs() == {"a": JobView("running", "is running")}


CALLS: dict[str, Callable[[RayCluster], Any]] = {
    "capacity": RayCluster.capacity,
    "jobs": RayCluster.jobs,
    "log": lambda here: here.log("a"),
    "stop": lambda here: here.stop("a"),
}
PATHS = {"capacity": "/api/v0/nodes", "jobs": "/api/jobs/", "log": "/api/jobs/a/logs", "stop": "/api/jobs/a/stop"}


@pytest.mark.parametrize("call", sorted(CALLS))
@pytest.mark.parametrize(
    "answer",
    [
        (200, "<html>a proxy"),
        (200, "[1, {}]"),
        (200, '{"data": null, "result": false, "msg": "the GCS does not answer"}'),
        (200, "null"),
        (500, "Traceback\nValueError: x"),
        (502, "bad gateway"),
        (401, "no token"),
    ],
    ids=["html", "list", "no data", "null", "500", "502", "401"],
)
def test_another_answer_than_the_one_asked_for_is_a_failure_in_one_line(dashboard, ray_cluster, call, answer):
    dashboard.answers[PATHS[call]] = answer
    with pytest.raises(EnvironmentFailure) as failure:
        CALLS[call](ray_cluster)

    assert "\n" not in str(failure.value)
    assert ray_cluster.address in str(failure.value)


@pytest.mark.parametrize("call", sorted(CALLS))
def test_a_dashboard_that_hangs_does_not_hang_the_queue(dashboard, ray_cluster, call, monkeypatch):
    monkeypatch.setattr(cluster, "ANSWER_S", 0.5)
    dashboard.hangs_at[PATHS[call]] = 0
    with pytest.raises(EnvironmentFailure, match="timed out"):
        CALLS[call](ray_cluster)


def test_nor_does_one_that_hangs_after_its_first_answer(dashboard, ray_cluster, monkeypatch):
    monkeypatch.setattr(cluster, "ANSWER_S", 2.0)
    dashboard.hangs_at["/api/version"] = 1
    with pytest.raises(EnvironmentFailure, match="timed out"):
        ray_cluster.jobs()


def test_nor_does_one_that_takes_no_job(dashboard, ray_cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "ANSWER_S", 2.0)
    dashboard.hangs_at["/api/jobs/"] = 0
    (tmp_path / "x.py").write_text("")
    job = Job("a", str(tmp_path / "runs"), "true", Submitter("ada", {}))
    with pytest.raises(EnvironmentFailure, match="timed out"):
        ray_cluster.start(job, tmp_path, 1)


def test_a_cluster_that_is_gone_is_a_failure_in_one_line():
    with pytest.raises(EnvironmentFailure, match=r"127\.0\.0\.1:1"):
        RayCluster("http://127.0.0.1:1").capacity()


def test_a_job_that_the_cluster_has_is_left_alone(dashboard, ray_cluster, tmp_path: Path):
    dashboard.answers["/api/jobs/"] = (500, "ValueError: Job with submission_id a already exists.")
    (tmp_path / "x.py").write_text("")
    assert not ray_cluster.start(Job("a", str(tmp_path / "runs"), "true", Submitter("ada", {})), tmp_path, 1)
