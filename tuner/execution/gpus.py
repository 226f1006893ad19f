"""Use and memory of this machine's NVIDIA GPUs."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import Any

READ_EVERY_S = 2.0


@dataclass(frozen=True)
class Gpu:
    """One GPU, whoever uses it."""

    number: int
    use: int
    """Share of the time in which it computed, in per cent."""
    used_bytes: int
    total_bytes: int
    watts: float | None = None
    """What it takes; None if it does not say."""


class Gpus:
    """Asks the driver, through the NVML that Ray brings, every `READ_EVERY_S` at most."""

    def __init__(self) -> None:
        self._handles = _handles()
        self._next = 0.0
        self._known: tuple[Gpu, ...] = ()

    def read(self) -> tuple[Gpu, ...]:
        """All of them; none where there is no driver, or it does not say."""
        if self._handles and time.monotonic() >= self._next:
            self._known = _read(self._handles)
            self._next = time.monotonic() + READ_EVERY_S
        return self._known


def _handles() -> list[Any]:
    try:
        from ray._private.thirdparty import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:  # no driver, or one that does not answer
        return []


def _read(handles: list[Any]) -> tuple[Gpu, ...]:
    from ray._private.thirdparty import pynvml

    found = []
    for number, handle in enumerate(handles):
        try:
            use = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        except pynvml.NVMLError:  # a GPU that is split with MIG has no use of its own
            continue
        found.append(Gpu(number, use, memory.used, memory.total, _watts(handle)))
    return tuple(found)


def use_of(uuid: str) -> int | None:
    """Share of the time in which the GPU of that UUID computed lately, in per cent; None if it does not say."""
    handle = _handle_of(uuid)
    if handle is None:
        return None
    from ray._private.thirdparty import pynvml

    try:
        return int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except pynvml.NVMLError:  # split with MIG, or lost
        return None


def power_of(uuid: str) -> float | None:
    """Watts that the GPU of that UUID takes; None if it does not say."""
    handle = _handle_of(uuid)
    return None if handle is None else _watts(handle)


def _watts(handle: Any) -> float | None:
    from ray._private.thirdparty import pynvml

    try:
        return float(pynvml.nvmlDeviceGetPowerUsage(handle)) / 1000
    except pynvml.NVMLError:  # an old one, split with MIG, or lost
        return None


@functools.cache
def _handle_of(uuid: str) -> Any:
    """None if there is no such GPU, or no driver."""
    try:
        from ray._private.thirdparty import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
    except pynvml.NVMLError:
        return None
