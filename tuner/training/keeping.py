"""What outlives a trial: `keep` makes a value once in a process, and each later trial there finds it.

    images = keep(("images", config.dataset), lambda: load(config.dataset).to(device))

tuner runs trial after trial in one process. Data on the device, a frozen network and compiled code are the same for
all of them, and to make them again can take longer than the training. A trial must not change what it got from `keep`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import random
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

T = TypeVar("T")


@dataclass
class _Kept:
    value: Any
    host_bytes: int
    gpu_bytes: int
    versions: tuple[Any, ...]
    """Of the tensors and networks in it."""
    used: bool = True
    """By the trial that runs, or that was the last to run."""


_kept: dict[Hashable, _Kept] = {}
"""By key; the one that was used last is the last."""
_lock = threading.RLock()


def keep(key: Hashable, make: Callable[[], T]) -> T:
    """Returns the value of ``key``, which the first trial of this process to ask for it has made.

    tuner drops all values if a file of your project changes, or if a trial changed a variable of one of your modules.
    As long as something is kept, your modules are not imported anew for each trial, so that compiled code stays too.
    Values that the last trial did not use are dropped if they need more than a quarter of the trial's memory. A value
    with a tensor that a trial changed is dropped. Without tuner, a value stays until its process ends.

    Args:
        key: Names all that the value depends on, such as the name of a data set and the size of its images: text,
            numbers, and tuples of these.
        make: Makes the value. It must depend on nothing but ``key``. Its random numbers, from the global generators of
            Python, numpy and torch, follow from ``key``. They leave those of the trial as they were.

    Returns:
        What ``make`` returned. Do not change it: the next trial gets the same object.

    Raises:
        TypeError: If ``key`` has no hash, such as a list.

    Example:
        >>> from tuner.training import keep
        >>> first = keep(("squares", 3), lambda: [n * n for n in range(3)])
        >>> keep(("squares", 3), list) is first
        True
    """
    with _lock:
        kept = _kept.pop(key, None)
        if kept is None:
            host, gpu = _host_bytes() - held().host, gpu_bytes() - held().gpu  # `make` may keep something itself
            with _own_randomness(key):
                value = make()
            grown = max(0, _host_bytes() - held().host - host), max(0, gpu_bytes() - held().gpu - gpu)
            kept = _Kept(value, *grown, _versions(value))
        kept.used = True
        _kept[key] = kept
    return cast(T, kept.value)


class Held(NamedTuple):
    """Bytes by which the memory in use grew when values were made."""

    host: int
    gpu: int


def held() -> Held:
    """Of all that is kept."""
    return Held(sum(kept.host_bytes for kept in _kept.values()), sum(kept.gpu_bytes for kept in _kept.values()))


def holds() -> bool:
    """Whether anything is kept."""
    return bool(_kept)


def drop_all() -> None:
    """Drops all that is kept."""
    _kept.clear()
    gc.unfreeze()  # what was made before the collector last froze its objects
    gc.collect()


def begin_trial(host_limit: float, gpu_limit: float) -> list[Hashable]:
    """Drops what the last trial changed, and what it did not use beyond the limits (bytes), oldest first.

    Returns the keys of what it changed.
    """
    changed = [key for key, kept in _kept.items() if _versions(kept.value) != kept.versions]
    for key in changed:
        del _kept[key]
    for key, kept in list(_kept.items()):
        now = held()
        if not kept.used and (now.host > host_limit or now.gpu > gpu_limit):
            del _kept[key]
    for kept in _kept.values():
        kept.used = False
    return changed


@contextlib.contextmanager
def _own_randomness(key: Hashable) -> Iterator[None]:
    """Within, the global generators give what ``key`` says; after it, what they would have given before it."""
    seed = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:4], "big")
    torch: Any = sys.modules.get("torch")
    pythons, numpys = random.getstate(), np.random.get_state()
    with contextlib.nullcontext() if torch is None else torch.random.fork_rng():
        random.seed(seed)
        np.random.seed(seed)
        if torch is not None:
            torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(pythons)
            np.random.set_state(numpys)


def _versions(value: Any) -> tuple[Any, ...]:
    torch: Any = sys.modules.get("torch")
    return () if torch is None else tuple(_versions_in(value, torch, set()))


def _versions_in(value: Any, torch: Any, seen: set[int]) -> Iterator[Any]:
    """Of tensors, torch's count of changes; of networks, also whether they train."""
    if id(value) in seen:
        return
    seen.add(id(value))
    parts: list[Any] = []
    if isinstance(value, torch.Tensor):
        if not value.is_inference():  # such a tensor cannot be changed out of inference mode, and has no version
            yield value._version, value.requires_grad, value.grad is None
    elif isinstance(value, torch.nn.Module):
        yield tuple(module.training for module in value.modules())
        parts = [*value.parameters(), *value.buffers()]
    elif type(value) is dict:
        parts = list(value.values())
    elif type(value) in (list, tuple):
        parts = list(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    for part in parts:
        yield from _versions_in(part, torch, seen)


def _host_bytes() -> int:
    """Without the pages of files, such as memory-mapped data, which the kernel takes back at need."""
    import psutil

    memory = psutil.Process().memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))  # Linux alone tells it


def gpu_bytes() -> int:
    """Allocated by torch, on all GPUs of this process."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(sum(torch.cuda.memory_allocated(number) for number in range(torch.cuda.device_count())))
