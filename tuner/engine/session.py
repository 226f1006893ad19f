"""The Ray session of a search: connected or started, with its settings, its resources and its log."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tuner.errors import EnvironmentFailure
from tuner.machine import Cluster, Node, this_machine
from tuner.plan import Plan
from tuner.results import LOG
from tuner.storage import RunFolder


@contextlib.contextmanager
def cluster_at(address: str | None) -> Iterator[Cluster]:
    """The cluster at ``address``, connected to within; a Ray that is already connected; or else this machine."""
    ray_is_up = "ray" in sys.modules and sys.modules["ray"].is_initialized()
    if address is None and not ray_is_up:
        yield this_machine()
        return
    import ray

    if not ray_is_up:
        _answers(str(address))
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            remedy = "does ~/.ray/auth_token here hold the cluster's token (`ray get-auth-token` there)?"
            raise EnvironmentFailure(f"no Ray cluster to be used at --address {address}: {reason}; {remedy}") from None
    try:
        alive = [node for node in ray.nodes() if node["Alive"]]
        nodes = tuple(
            Node(n["NodeManagerHostname"], {k: v for k, v in n["Resources"].items() if _counts(k)}) for n in alive
        )
        yield Cluster(nodes, address or "of this process")
    finally:
        if not ray_is_up:
            ray.shutdown()


def _answers(address: str) -> None:
    """Raises EnvironmentFailure where nothing listens at ``host:port``; Ray itself would try for four minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in address:
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        message = f"no Ray cluster at --address {address}: {error}; is it running, and is this its address?"
        raise EnvironmentFailure(message) from None


def _counts(resource: str) -> bool:
    return not resource.startswith(("node:", "object_store_memory", "accelerator_type"))


WATCH_EVERY_S, PATIENCE_S = 1.0, 15.0

_VITAL = ("gcs_server", "raylet")

_RAY_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # results.parquet holds what CSV, JSON and TensorBoard would repeat
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # a trial's process checks, and fails the trial instead of the search
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_FORCE_TRIAL_CLEANUP_S": "30",
    "TUNE_RESULT_BUFFER_LENGTH": "1",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # a trial without a GPU must not see one
}


@contextlib.contextmanager
def ray_up(plan: Plan, died: Callable[[str], None], stuck: Callable[[], None]) -> Iterator[None]:
    """Within: Ray is up with the resources of the plan, and set up as a search needs it.

    ``died`` is called, from another thread, with the name of a process of Ray's that is gone and without which nothing
    goes on; Ray itself would wait for a minute and then end this process without a word. ``stuck`` is called where the
    block has not been left `PATIENCE_S` later, as its thread waits in Ray for what is gone.
    """
    import ray

    before = {name: os.environ.get(name) for name in _RAY_SETTINGS}
    os.environ.update(_RAY_SETTINGS)
    ours = not ray.is_initialized()
    watch = Watch(died, stuck)
    try:
        if ours:
            _start_ray(plan)
            watch.start()
        yield
    finally:
        watch.ended.set()
        if watch.lost:
            _bury_ray()
        elif ours:
            ray.shutdown()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


class Watch(threading.Thread):
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


def _bury_ray() -> None:
    """Ends what is left of a Ray that cannot be shut down any more: its shutdown would wait for what is gone."""
    import atexit

    import ray
    from ray.air.execution.resources.placement_group import PlacementGroupResourceManager

    # the garbage collector may call it at any moment from now on, and it would ask the Ray that is gone, and wait
    PlacementGroupResourceManager.__del__ = lambda manager: None
    atexit.unregister(ray._private.worker.shutdown)
    ray._private.worker._global_node.kill_all_processes(check_alive=False, allow_graceful=False)


def _start_ray(plan: Plan) -> None:
    """Starts Ray on this machine with the very resources that the plan was made for.

    Raises EnvironmentFailure where it does not come up.
    """
    import ray

    from tuner.engine.handover import thread_environment

    machine = plan.cluster.nodes[0].resources
    try:
        ray.init(
            address="local",  # else Ray joins a cluster that RAY_ADDRESS or an earlier `ray start` names
            num_cpus=int(machine["CPU"]),
            num_gpus=int(machine["GPU"]),
            _memory=int(machine["memory"]),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.INFO,
            configure_logging=False,
            runtime_env={"env_vars": thread_environment(plan.spec.resources.cpu)},
        )
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise EnvironmentFailure(f"Ray does not start on this machine: {reason}") from error


@contextlib.contextmanager
def ray_log(folder: RunFolder) -> Iterator[Callable[[], None]]:
    """Within: what Ray says on the driver goes to the run folder's log and nowhere else.

    Yields what must be called once Ray is up: its first start in a process throws all handlers out.
    """
    logger = logging.getLogger("ray")
    with tempfile.TemporaryDirectory() as scratch:
        file = folder.local_path / LOG if folder.is_local else Path(scratch) / LOG
        handler = logging.FileHandler(file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        saved = logger.handlers[:], logger.propagate, logger.level

        def attach() -> None:
            logger.handlers[:], logger.propagate = [handler], False
            logger.setLevel(logging.INFO)

        attach()
        try:
            yield attach
        finally:
            logger.handlers[:], logger.propagate = saved[0], saved[1]
            logger.setLevel(saved[2])
            handler.close()
            if not folder.is_local:
                folder.write(LOG, file.read_bytes())
