"""The Ray session of a search: connected or started, with its settings, its resources and its log."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tuner.errors import EnvironmentFailure, LockLost
from tuner.execution.autoscaler import autoscaler
from tuner.execution.connect import check_address
from tuner.execution.local_cluster import RayWatchdog, force_shutdown, start_ray
from tuner.execution.slots import nodes
from tuner.plan.cluster import Cluster, this_machine
from tuner.plan.plan import Plan
from tuner.runs.results import LOG
from tuner.storage.folder import RunFolder, open_own
from tuner.storage.lock import Lock
from tuner.trainable.bound_parameters import parameters_kept


@contextlib.contextmanager
def cluster_at(address: str | None) -> Iterator[Cluster]:
    """The cluster at ``address``, connected to within; a Ray that is already connected; or else this machine."""
    ray_is_up = "ray" in sys.modules and sys.modules["ray"].is_initialized()
    if address is None and not ray_is_up:
        yield this_machine()
        return
    import ray

    if not ray_is_up:
        check_address(str(address))
        try:
            with parameters_kept():
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            remedy = "is this machine a node of it (from elsewhere: `python -m tuner submit`)?"
            raise EnvironmentFailure(
                f"no Ray cluster to be used at --ray-address {address}: {reason}; {remedy}"
            ) from None
    try:
        yield Cluster(nodes(), address or "of this process", autoscaler())
    finally:
        if not ray_is_up:
            ray.shutdown()


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
def ray_up(
    plan: Plan, died: Callable[[str], None], stuck: Callable[[], None], say: Callable[[str], None]
) -> Iterator[None]:
    """Within: Ray is up with the resources of the plan, and set up as a search needs it.

    ``died`` is called, from another thread, with the name of a process of Ray's that is gone and without which nothing
    continues; Ray itself would wait for a minute and then end this process without a word. ``stuck`` is called where
    the block has not been left `PATIENCE_S` later, as its thread waits in Ray for what is gone. ``say`` gets notices.
    """
    import ray

    before = {name: os.environ.get(name) for name in _RAY_SETTINGS}
    os.environ.update(_RAY_SETTINGS)
    ours = not ray.is_initialized()
    watch = RayWatchdog(died, stuck)
    try:
        if ours:
            start_ray(plan, say)
            watch.start()
        yield
    finally:
        watch.ended.set()
        if watch.lost:
            force_shutdown()
        elif ours:
            ray.shutdown()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def ray_log(folder: RunFolder, lock: Lock) -> Iterator[Callable[[], None]]:
    """Within: what Ray says on the driver goes to the run folder's log and nowhere else.

    Yields what must be called once Ray is up: its first start in a process throws all handlers out.
    """
    logger = logging.getLogger("ray")
    with tempfile.TemporaryDirectory() as scratch:
        file = folder.local_path / LOG if folder.is_local else Path(scratch) / LOG
        stream = os.fdopen(open_own(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a")
        handler = logging.StreamHandler(stream)
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
            stream.close()
            if not folder.is_local:
                with contextlib.suppress(LockLost):  # `JournalWriter.sync` raises it
                    lock.check()
                    folder.write(LOG, file.read_bytes())
