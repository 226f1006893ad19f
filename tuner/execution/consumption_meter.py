"""Measures what a trial consumes, in its own process: host memory, GPU memory, and the use of its GPUs.

The kernel and torch keep the peaks. They are reset for each trial, because a process runs one trial after the other.
Nothing keeps the memory of the processes that a trial started, or the use of GPUs: these are sampled every `SAMPLE_S`.
The figures of GPUs come from torch: a trial that does not use a GPU with torch has none.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tuner.execution import data_wait, host_memory
from tuner.execution.gpus import power_of, use_of
from tuner.runs.consumption import SECONDS_DIGITS, Consumption, gib, of_ranks

CONSUMED = "tuner/consumed"
"""Key of a report under which a trial's process sends its consumption to the driver."""

SAMPLE_S = 1.0
"""Seconds between two looks. NVML gives a GPU's use over the last second, or less of it."""
SAMPLE_SHARE = 0.01
"""Of a core that looks may take: the kernel goes through all pages of the processes that a trial started."""


class OtherRanks(Protocol):
    """The other processes of a trial."""

    def look(self) -> list[float]:
        """Asks them. Returns the use of their GPUs."""

    def known(self) -> Sequence[Consumption] | None:
        """What each consumed when it was asked last; None while one has not answered yet."""


@dataclass(frozen=True)
class _Gpu:
    """One that this process uses, in bytes."""

    number: int
    allocated: int
    peak: int
    reserved_peak: int


class ConsumptionMeter:
    """Of one process, for one trial after the other."""

    def __init__(
        self, use: Callable[[str], int | None] = use_of, power: Callable[[str], float | None] = power_of
    ) -> None:
        self._use, self._power = use, power
        self._lock = threading.Lock()
        self.others: OtherRanks | None = None
        """None if the trial has one process."""
        self._begin()

    def _begin(self) -> None:
        with self._lock:
            self._knows_peak = host_memory.reset_peak()
            for gpu in _gpus():
                sys.modules["torch.cuda"].reset_peak_memory_stats(gpu.number)
            self._peak = self._gpu_peak = self._reserved_peak = 0
            self._children = 0
            self._uses: list[float] = []
            self._watts: list[float] = []
            self.others = None
            self._has_waited = False
        data_wait.begin()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Within, a trial runs in this process."""
        self._begin()
        over = threading.Event()
        # threads of that name may stay when a trial ends: it ends with its next look
        threading.Thread(target=self._watch, args=(over,), name="ray_consumption", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                over.set()

    def _watch(self, over: threading.Event) -> None:
        pause = SAMPLE_S
        while not over.wait(pause):
            others = self.others
            uses = others.look() if others else []
            began = time.thread_time()
            self.sample(uses, over)
            pause = max(SAMPLE_S, (time.thread_time() - began) / SAMPLE_SHARE)

    def sample(self, uses: Sequence[float] = (), over: threading.Event | None = None) -> None:
        """Looks at what nobody keeps, unless the trial is ``over``; ``uses`` of GPUs are those of other ranks."""
        children = host_memory.memory_of_children()
        uuids = [_uuid(gpu.number) for gpu in _gpus()]
        own = [use for uuid in uuids if (use := self._use(uuid)) is not None]
        watts = [power for uuid in uuids if (power := self._power(uuid)) is not None]
        with self._lock:
            if over and over.is_set():
                return
            self._children = children
            self._uses += [*own, *uses]
            self._watts += [sum(watts)] if watts else []
            self._look()

    def read(self, writing: float | None = None) -> Consumption:
        """What the trial has consumed by now. Use and seconds are those since the last call.

        ``writing``: the seconds for which it wrote checkpoints.
        """
        waited = data_wait.seconds()
        with self._lock:
            if not host_memory.has_children():
                self._children = 0
            own, allocated = self._look()
            use = round(sum(self._uses) / len(self._uses), 1) if self._uses else None
            watts = round(sum(self._watts) / len(self._watts), 1) if self._watts else None
            self._uses, self._watts = [], []
            on_gpu = allocated is not None
            found = Consumption(
                host_gib=gib(own + self._children),
                peak_host_gib=gib(self._peak),
                gpu_gib=gib(allocated) if allocated is not None else None,
                peak_gpu_gib=gib(self._gpu_peak) if on_gpu else None,
                peak_gpu_reserved_gib=gib(self._reserved_peak) if on_gpu else None,
                gpu_use=use,
                gpu_watts=watts,
                data_s=None if waited is None else round(waited, SECONDS_DIGITS),
                checkpoint_s=None if writing is None else round(writing, SECONDS_DIGITS),
            )
        return self._with_others(found)

    def _with_others(self, own: Consumption) -> Consumption:
        """Of all ranks; nothing while one of them is not known, as a sum that lacks one is none."""
        others = self.others
        if others is None:
            return own
        known = others.known()
        if known is None and not self._has_waited:
            self._has_waited = True  # once: a report must not wait for a rank that never answers
            others.look()
            known = others.known()
        return Consumption() if known is None else of_ranks([own, *known])

    def _look(self) -> tuple[int, int | None]:
        """Brings the peaks up to date. Returns the bytes of host memory, and those on the GPU that has most."""
        memory, gpus = host_memory.own_memory(), _gpus()
        self._peak = max(self._peak, memory.peak if self._knows_peak else 0, memory.resident + self._children)
        if not gpus:
            return memory.held, None
        self._gpu_peak = max(self._gpu_peak, *(gpu.peak for gpu in gpus))  # the trial may reset torch's own
        self._reserved_peak = max(self._reserved_peak, *(gpu.reserved_peak for gpu in gpus))
        return memory.held, max(gpu.allocated for gpu in gpus)


def _gpus() -> list[_Gpu]:
    """Those on which this process has had memory since the trial began. Never makes torch start up a GPU."""
    cuda: Any = sys.modules.get("torch.cuda")
    is_initialized = getattr(cuda, "is_initialized", None)  # another thread may be importing it
    if is_initialized is None or not is_initialized():
        return []
    found = []
    for number in range(cuda.device_count()):
        told = cuda.memory_stats(number)
        gpu = _Gpu(
            number,
            told.get("allocated_bytes.all.current", 0),
            told.get("allocated_bytes.all.peak", 0),
            told.get("reserved_bytes.all.peak", 0),
        )
        if gpu.peak:
            found.append(gpu)
    return found


def _uuid(number: int) -> str:
    return str(sys.modules["torch.cuda"].get_device_properties(number).uuid)
