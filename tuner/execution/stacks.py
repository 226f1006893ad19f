"""The stacks of a process that hangs: it writes them itself when it gets a signal, on whichever node it is.

That works as long as the process lives, whatever holds Python's lock.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
from pathlib import Path

from tuner.execution.actor_hosts import ActorLocation, locate_actor, owned_by

STACK_HERE_S, STACK_ELSEWHERE_S = 1.0, 15.0
"""Time for the stacks to be written; on another node a process has to start first, which sends the signal."""


def answer_signal() -> None:
    """From now on this process answers SIGUSR1 with the stacks of its threads, on what is then its stderr."""
    if hasattr(faulthandler, "register"):  # not on Windows
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True, chain=False)


def ask_for_stacks(actor_id: str) -> float:
    """Signals the process of an actor and those that it started, the other ranks of its trial.

    Returns the seconds until the stacks are written.
    """
    place = locate_actor(actor_id)
    if not place.pid or not hasattr(signal, "SIGUSR1"):
        return 0.0
    return max(_ask(one) for one in (place, *owned_by(place)))


def _ask(place: ActorLocation) -> float:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if place.node == ray.get_runtime_context().get_node_id():
        send(place.pid)
        return STACK_HERE_S
    there = NodeAffinitySchedulingStrategy(place.node, soft=False)
    ray.remote(send).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote(place.pid)
    return STACK_ELSEWHERE_S


def send(pid: int) -> None:
    """Signals process ``pid`` of this machine, where it is one of Ray's that answers.

    The number comes from Ray's control store: the process may have died since, and the number may be another's, which
    the signal would end.
    """
    if _answers(pid):
        with contextlib.suppress(ProcessLookupError):  # it has just died: Ray tells soon
            os.kill(pid, signal.SIGUSR1)


def _answers(pid: int) -> bool:
    """Whether the process is a worker of Ray's, and has a handler for the signal (where there is a /proc to tell)."""
    import psutil

    try:
        command = psutil.Process(pid).cmdline()
        status = Path(f"/proc/{pid}/status")
        caught = re.search(r"^SigCgt:\s*(\w+)", status.read_text(), re.MULTILINE) if status.exists() else None
    except (psutil.Error, OSError):  # it is gone, or another user's
        return False
    handles = caught is None or bool(int(caught[1], 16) >> (signal.SIGUSR1 - 1) & 1)
    return bool(command) and command[0].startswith("ray::") and handles
