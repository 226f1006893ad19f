"""The Ray that a search without a cluster starts for itself, on this machine: no more of it than a search uses."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from tuner.errors import EnvironmentFailure
from tuner.execution import agent_placeholder
from tuner.execution.auth import MODE, core, make_token, require_token
from tuner.plan.cluster import mig_slices
from tuner.plan.plan import Plan
from tuner.trainable.bound_parameters import parameters_kept

WATCH_EVERY_S, PATIENCE_S = 1.0, 15.0

METRICS = "RAY_enable_metrics_collection"
PRELOAD, PRESTART = "RAY_preload_python_modules", "RAY_prestart_worker_first_driver"

_SLOW = ("torch",)
"""Imported ahead in a trial's process if the trainable has imported them here."""

_VITAL = ("gcs_server", "raylet")

_AGENT = "--dashboard_agent_command="

_IDLE = subprocess.list2cmdline([sys.executable, "-IS", agent_placeholder.__file__])
"""Runs `tuner.execution.agent_placeholder` without importing anything else."""


def start_ray(plan: Plan, say: Callable[[str], None]) -> None:
    """Starts Ray on this machine with the very resources that the plan was made for; ``say`` gets notices.

    Raises EnvironmentFailure if it does not come up.
    """
    import ray

    machine = plan.cluster.nodes[0].resources
    try:
        if notice := make_token():
            say(f"NOTICE: {notice}")
        with (
            parameters_kept(),
            minimal_services(),
            _token_required(),
            _without_hangups(),
            _environment(_of_workers(plan) | _slices()),
        ):
            ray.init(
                address="local",  # else Ray joins a cluster that RAY_ADDRESS or an earlier `ray start` names
                num_cpus=int(machine["CPU"]),
                num_gpus=int(machine["GPU"]),
                _memory=int(machine["memory"]),
                _temp_dir=str(private_folder() / "ray"),
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.INFO,
                configure_logging=False,
            )
    except Exception as error:  # Ray raises a bare one where its node does not come up in time
        reason = " ".join(str(error).split())
        raise EnvironmentFailure(f"Ray does not start on this machine: {reason}") from error


def private_folder() -> Path:
    """A folder in /tmp (or RAY_TMPDIR) that only this user may enter.

    Ray (2.60) lets everybody write in the folders of its sessions: another user could replace a socket, or code. The
    path is short, as a socket's may have 107 bytes. Raises OSError.
    """
    base = Path(os.environ.get("RAY_TMPDIR") or "/tmp")
    folder = base / f"tuner-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():  # somebody was there first
        return Path(tempfile.mkdtemp(prefix="tuner-", dir=base))
    folder.chmod(0o700)
    return folder


@contextlib.contextmanager
def minimal_services() -> Iterator[None]:
    """Within: Ray starts without the processes that serve people and autoscalers, for which `ray.init` has no option.

    Four processes are left out: the dashboard's server (Ray runs it for its usage statistics even without a dashboard),
    its agent, the autoscaler's monitor and the log monitor. On a small machine the imports of these four interpreters
    delay the first trial. Numbers: docs/benchmarks/constants.md.
    """
    from ray._private import node, parameter, services, utils

    parameters = functools.partial(parameter.RayParams, no_monitor=True, include_log_monitor=False)
    with (
        mock.patch.object(parameter, "RayParams", parameters),
        mock.patch.object(node.Node, "start_api_server", return_value=None),
        mock.patch.object(services, "start_ray_process", functools.partial(_start, services.start_ray_process)),
        # of an agent that is not started: to ask is to import what it needs, 0.1 s
        mock.patch.object(utils, "get_dashboard_dependency_error", return_value=ImportError("not asked for")),
    ):
        yield


def _start(start: Callable[..., Any], command: list[str], process_type: str, *arguments: Any, **options: Any) -> Any:
    """Ray's ``start_ray_process``, but that a raylet gets an idle process where it wants the dashboard's agent.

    It does not start without one, nor before it knows the ports at which one can be asked: they are given as none, as
    the agent itself does where Ray is installed without a dashboard.
    """
    from ray._private.ray_constants import PROCESS_TYPE_RAYLET

    if process_type == PROCESS_TYPE_RAYLET:
        rays = core()
        ports = rays.METRICS_AGENT_PORT_NAME, rays.METRICS_EXPORT_PORT_NAME, rays.DASHBOARD_AGENT_LISTEN_PORT_NAME
        told = dict(word.split("=", 1) for word in command if "=" in word)
        for port in ports:
            rays.persist_port(told["--session_dir"], told["--node_id"], port, -1)
        command = [_AGENT + _IDLE if word.startswith(_AGENT) else word for word in command]
    return start(command, process_type, *arguments, **options)


@contextlib.contextmanager
def _token_required() -> Iterator[None]:
    """Within: Ray starts so that who knows no token gets nothing from it, whatever the environment says of clusters.

    Its servers can be reached from other machines, also where it is asked for 127.0.0.1 (Ray 2.60). With
    RAY_AUTH_MODE=disabled anybody there can list the session's nodes and submit a job to it. Its metrics are open to
    all with a token too, so that it collects none.
    """
    with _environment({MODE: "token", METRICS: "0"}):
        require_token()
        yield


def _slices() -> dict[str, str]:
    """The slices of split GPUs, as Ray takes them: it gives each worker some of what this variable names."""
    slices = mig_slices()
    return {"CUDA_VISIBLE_DEVICES": ",".join(slices)} if slices else {}


def _of_workers(plan: Plan) -> dict[str, str]:
    """The environment of Ray's workers.

    Ray starts a process a CPU before it knows what for, and a trial takes one (`tuner.execution.prestarted_actors`)
    unless it has GPUs. If each is to run a trial, they import what a trial needs while this process prepares the
    search; else they would be in vain, 0.4 s of CPU each, and are not started.
    """
    from tuner.execution.process_reset import thread_environment

    environment = thread_environment(plan.spec.resources.cpus) | {"PL_DISABLE_FORK": "1"}  # the latter as Ray Tune does
    if plan.request.get("GPU") or plan.slots < int(plan.cluster.nodes[0].resources["CPU"]):
        return environment | {PRESTART: "0"}
    modules = ["tuner.execution.preloaded", *(name for name in _SLOW if name in sys.modules)]
    return environment | {PRELOAD: ",".join(modules)}


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Within: the environment has ``variables``."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def _without_hangups() -> Iterator[None]:
    """Within: processes start that no SIGHUP ends, which comes to all of them where the terminal of the search is gone.

    Ray does the same with SIGINT. A signal that comes meanwhile is not lost to this process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class RayWatchdog(threading.Thread):
    """Looks every `WATCH_EVERY_S` whether Ray's own processes are alive."""

    def __init__(self, died: Callable[[str], None], stuck: Callable[[], None]) -> None:
        super().__init__(name="ray_watch", daemon=True)
        self._died = died
        self._stuck = stuck
        self.ended = threading.Event()
        self.lost = False

    def run(self) -> None:
        import ray

        node = ray._private.worker._global_node
        while not self.ended.wait(WATCH_EVERY_S):
            gone = [name for name, _ in node.dead_processes() if name in _VITAL]
            if gone:
                self.lost = True
                self._died(gone[0])
                if not self.ended.wait(PATIENCE_S):
                    self._stuck()
                return


def force_shutdown() -> None:
    """Ends what is left of a Ray that cannot be shut down any more: its shutdown would wait for what is gone."""
    import atexit

    import ray
    from ray.air.execution.resources.placement_group import PlacementGroupResourceManager

    # the garbage collector may call it at any moment from now on, and it would ask the Ray that is gone, and wait
    PlacementGroupResourceManager.__del__ = lambda manager: None
    atexit.unregister(ray._private.worker.shutdown)
    ray._private.worker._global_node.kill_all_processes(check_alive=False, allow_graceful=False)
