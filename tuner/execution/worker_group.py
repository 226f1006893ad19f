"""The processes of a trial that trains one model in several: a distributed data parallel group.

The trial's own process is rank 0 and does all that a trial does: it reports, and continues from its checkpoint. The
other ranks are actors in the other bundles of its placement group. Each calls the same function with the same
configuration. It forms the group by the environment variables of ``torchrun`` (RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR, MASTER_PORT and others), as `tuner.training.distributed` does. Nothing else is between the function and Ray
Tune, so that such a trial is stopped, paused, retried and saved as every other.

Ray Train's ``TorchTrainer`` is not used under the trial. With Ray 2.60 it starts a controller and another process for
rank 0, which takes about 20 s a trial before the first epoch (two workers, gloo). It also leaves the trial's results
without checkpoints.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.train._internal.session import get_session
from ray.util import get_node_ip_address
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tuner.execution.consumption_meter import ConsumptionMeter
from tuner.execution.failure_classifier import UserError, print_traceback, user_error
from tuner.execution.process_reset import ProcessState, output_to
from tuner.execution.stacks import answer_signal, ask_for_stacks
from tuner.execution.stand_in_session import StandInSession, in_place_of_rays
from tuner.execution.storage_check import check_visible_here
from tuner.execution.trial_context import TrialContext, run_function
from tuner.plan.cluster import free_port
from tuner.runs.consumption import Consumption
from tuner.storage.folder import RunFolder

ANSWER_S = 1.0
"""How long the other ranks are waited for when they are asked what they consume."""

PATIENCE_S = 10.0
"""How long a rank that lost the others waits for the one that can tell the reason."""

START_S = 600.0
"""How long the processes of the other ranks may take to start: their places are reserved, so it is imports only."""

_LOST_THE_OTHERS = re.compile(r"gloo|NCCL|ProcessGroup|DistBackendError|TCPStore|peer|Broken pipe", re.IGNORECASE)
"""Messages of torch in a rank if another one is gone."""

_TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)
"""Messages of torch in a rank that has waited for another one for too long."""


@dataclass(frozen=True)
class Place:
    """The node that a rank is on, and the GPUs there that Ray gave it."""

    node: str
    gpus: tuple[str, ...] = ()

    @classmethod
    def of_this_process(cls) -> Place:
        """The place of this process."""
        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", ())
        return cls(str(get_node_ip_address()), tuple(map(str, gpus)))


class Rank:
    """A rank but the first, in a process of its own."""

    def __init__(self) -> None:
        answer_signal()
        self._process = ProcessState()
        self._meter = ConsumptionMeter()

    def consumed(self) -> Consumption:
        """Its consumption by now; called while `run` runs, in another thread."""
        self._meter.sample()
        return self._meter.read()

    def place(self, log: Path | None) -> Place:
        """The place that it runs at. Raises StorageUnseen if that node does not see the run folder of ``log``."""
        if log:
            check_visible_here(RunFolder.at(log.parents[2]))
        return Place.of_this_process()

    def run(
        self,
        task: TrialContext,
        config: dict[str, Any],
        environment: dict[str, str],
        log: Path | None,
        session: StandInSession,
    ) -> None:
        """Calls the user's function, which finds ``session``; what it prints goes to ``log``. Raises UserError."""
        with in_place_of_rays(session), output_to(log) if log else contextlib.nullcontext():
            try:
                run_function(self._process, task, config, lambda metrics: None, environment | interface())
            except Exception as error:  # noqa: BLE001 - the user's code may raise anything
                print_traceback(error)
                raise user_error(error) from None


@contextlib.contextmanager
def ranks(
    task: TrialContext,
    config: dict[str, Any],
    place: PlacementGroup,
    log: Path | None,
    failed: Callable[[BaseException], None],
    meter: ConsumptionMeter,
) -> Iterator[dict[str, str]]:
    """Within: the other ranks call the function of ``task`` too. Yields the variables that rank 0 finds.

    Rank n runs in bundle n of ``place``. ``log``: rank 0's file, beside which the others write theirs. ``failed`` is
    called, from another thread, if a rank has failed and rank 0 does not end by itself within `PATIENCE_S`: it may
    wait for that rank for ever. If rank 0 ends because another rank is gone, the error of that rank is raised.
    ``meter``: rank 0's, which counts what the others consume.
    """
    actors = [_start(task, place, rank) for rank in range(1, task.workers)]
    over = threading.Event()
    try:
        here, session = Place.of_this_process(), _session_of_others()
        first, *others = environments([here, *_places(actors, log)], free_port(here.node))
        calls = [
            actor.run.remote(task, config, environment, log and log.with_suffix(f".{rank}{log.suffix}"), session)
            for rank, (actor, environment) in enumerate(zip(actors, others, strict=True), start=1)
        ]
        threading.Thread(target=_await_calls, args=(calls, actors, over, failed), name="ray_ranks", daemon=True).start()
        try:
            meter.others = RanksConsumption(actors)
            yield first | interface()
        except Exception as error:
            if _waited_in_vain(error):
                _write_stacks(actors)
            reason = _reason(calls) if _LOST_THE_OTHERS.search(_text(error)) else None
            if reason is None:
                raise
            raise reason from None
    finally:
        over.set()
        meter.others = None
        for actor in actors:
            ray.kill(actor)


class RanksConsumption:
    """What the other ranks of a trial consume: one that computes without a pause answers late."""

    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = actors
        self._lock = threading.Lock()
        self._asked: dict[int, Any] = {}
        """By rank: the question that it has not answered yet."""
        self._known: dict[int, Consumption] = {}

    def look(self) -> list[float]:
        """Asks them, and waits `ANSWER_S` at most. Returns the use of their GPUs."""
        with self._lock:
            for rank, actor in enumerate(self._actors):
                if rank not in self._asked:
                    self._asked[rank] = actor.consumed.remote()
            calls = list(self._asked.values())
            done, _ = ray.wait(calls, num_returns=len(calls), timeout=ANSWER_S)
            uses = []
            for rank, call in list(self._asked.items()):
                if call in done:
                    del self._asked[rank]
                    with contextlib.suppress(ray.exceptions.RayError):  # it is gone, which others find out
                        told = ray.get(call)
                        self._known[rank] = replace(told, gpu_use=None)
                        if told.gpu_use is not None:
                            uses.append(told.gpu_use)
            return uses

    def known(self) -> Sequence[Consumption] | None:
        """What each consumed when it answered last; None while one has not answered yet."""
        return list(self._known.values()) if len(self._known) == len(self._actors) else None


def _session_of_others() -> StandInSession:
    """For the other ranks: the trial of this process, and the checkpoint that it continues from."""
    mine = get_session()
    return StandInSession(mine.trial_id, mine.trial_resources, mine.trial_dir, mine.loaded_checkpoint)


def _places(actors: Sequence[Any], log: Path | None) -> list[Place]:
    """Of the other ranks, in order. Raises UserError if one does not start."""
    calls = [actor.place.remote(log) for actor in actors]
    _, late = ray.wait(calls, num_returns=len(calls), timeout=START_S)
    if late:
        missing = ", ".join(str(calls.index(call) + 1) for call in late)
        raise UserError("hung", f"rank {missing} of its {len(calls) + 1} processes did not start within {START_S:g} s")
    return list(ray.get(calls))


def environments(places: Sequence[Place], port: int) -> list[dict[str, str]]:
    """The variables of ``torchrun`` for each rank, by the place that it runs at; rank 0 listens at ``port``.

    Ray shows each process its own GPUs only, while Lightning and Accelerate take the GPU with the number LOCAL_RANK. So
    the ranks of a node see the GPUs of all of them, each at its own number. Lightning knows torchrun by
    TORCHELASTIC_RUN_ID. Without ACCELERATE_USE_CPU, Accelerate forms the group on CPUs and trains in each rank alone.
    NCCL refuses two ranks on one GPU, so that all ranks take gloo if any two share one.
    """
    from tuner.training.distributed import BACKEND  # imports torch, which the driver does without

    on_node: dict[str, list[Place]] = {}
    found, share_gpus = [], False
    for rank, place in enumerate(places):
        beside = on_node.setdefault(place.node, [])
        found.append(
            {
                "RANK": str(rank),
                "WORLD_SIZE": str(len(places)),
                "LOCAL_RANK": str(len(beside)),
                "GROUP_RANK": str(list(on_node).index(place.node)),
                "MASTER_ADDR": places[0].node,
                "MASTER_PORT": str(port),
                "TORCHELASTIC_RUN_ID": "tuner",
            }
        )
        beside.append(place)
    for place, variables in zip(places, found, strict=True):
        beside = on_node[place.node]
        variables["LOCAL_WORLD_SIZE"] = str(len(beside))
        if gpus := _seen_by_all(beside):
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        elif any(place.gpus for place in beside):
            share_gpus = True
        else:
            variables["ACCELERATE_USE_CPU"] = "true"
    return [variables | {BACKEND: "gloo"} for variables in found] if share_gpus else found


def _seen_by_all(places: Sequence[Place]) -> list[str]:
    """The GPUs of the ranks of a node: first one of each rank, in their order. Empty if ranks share a GPU."""
    gpus = [gpu for turn in itertools.zip_longest(*(place.gpus for place in places)) for gpu in turn if gpu is not None]
    return gpus if len(set(gpus)) == len(gpus) else []


def interface() -> dict[str, str]:
    """The network interface for gloo, which else takes the one that the host's name leads to: often loopback."""
    address = get_node_ip_address()
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address == address for one in addresses) and "GLOO_SOCKET_IFNAME" not in os.environ:
            return {"GLOO_SOCKET_IFNAME": name}
    return {}


def _start(task: TrialContext, place: PlacementGroup, rank: int) -> Any:
    request = dict(task.request)
    return (
        ray.remote(Rank)
        .options(
            num_cpus=request.pop("CPU"),
            num_gpus=request.pop("GPU", 0),
            memory=request.pop("memory", None),
            resources=request,
            max_concurrency=2,  # `consumed` is asked while `run` runs
            scheduling_strategy=PlacementGroupSchedulingStrategy(place, placement_group_bundle_index=rank),
        )
        .remote()
    )


def _await_calls(
    calls: list[Any], actors: Sequence[Any], over: threading.Event, failed: Callable[[BaseException], None]
) -> None:
    left = calls
    while left and not over.is_set():
        done, left = ray.wait(left, timeout=1.0)
        error = _error(done[0]) if done else None
        if error is not None:
            if _waited_in_vain(error):
                faulthandler.dump_traceback(file=2)  # of this process: rank 0
                _write_stacks(actors)
            if not over.wait(PATIENCE_S):
                failed(error)
            return


def _text(error: BaseException) -> str:
    return f"{type(error).__name__} {error}"


def _waited_in_vain(error: BaseException) -> bool:
    """Whether a rank waited for another one for too long, and the cause is where that one is."""
    return bool(_LOST_THE_OTHERS.search(_text(error)) and _TIMED_OUT.search(_text(error)))


def _write_stacks(actors: Sequence[Any]) -> None:
    """Has the living ranks but the first write into their logs where they are."""
    time.sleep(max((ask_for_stacks(actor._actor_id.hex()) for actor in actors), default=0.0))


def _reason(calls: list[Any]) -> BaseException | None:
    """Why the first rank failed that did not only lose the others."""
    done, _ = ray.wait(calls, num_returns=len(calls), timeout=PATIENCE_S)
    errors = [error for call in done if (error := _error(call)) is not None]
    return next((error for error in errors if not _LOST_THE_OTHERS.search(str(error))), next(iter(errors), None))


def _error(call: Any) -> BaseException | None:
    try:
        ray.get(call)
    except ray.exceptions.RayTaskError as error:
        cause: BaseException = error.cause
        return cause
    except ray.exceptions.RayError as error:
        lost: BaseException = error
        return lost
    return None
