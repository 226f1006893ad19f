"""Data loading that suits the machine: the number of worker processes is measured, and changes nothing but the speed.

    with loader(images, 64, cpus=2, seed=config.seed) as batches:
        for epoch in range(finished + 1, config.epochs + 1):
            batches.set_epoch(epoch)
            for x, y in batches:
                ...

The order of the samples follows from `seed` and the epoch. So do the random numbers that the data set draws for a
sample from torch, numpy (`np.random.seed` and its like) and `random`. An epoch after a resume is therefore the one
that an uninterrupted training would see, with any number of workers. Generators that a data set makes and keeps for
itself are outside of this: give them seeds drawn from one of the three. Torch's operations in a data set use one
thread, with workers and without.

Workers end with `close`, with the `with` block, with the loader, and with the process, even if that is killed.
"""

import math
import multiprocessing
import multiprocessing.context
import os
import platform
import threading
import weakref
from collections.abc import Callable, Iterable, Sized
from pathlib import Path
from typing import Any, Literal, Self, cast

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from tuner.training.sample_order import Batches, EndlessBatches, SeededDataset
from tuner.training.worker_count import batches_per_second, choose_workers, measurements_folder


class Loader(DataLoader[Any]):
    """A DataLoader with an epoch and an end; `loader` makes it.

    Its `dataset` wraps yours, which is `dataset.dataset`. Its `batch_size` is None, as for every DataLoader with a
    sampler of batches; the size is `batch_sampler.batch_size`.
    """

    def __init__(self, dataset: SeededDataset, batches: Batches, **options: Any) -> None:
        # With a generator of its own, the loader draws nothing from torch's global one.
        super().__init__(dataset, batch_sampler=batches, generator=torch.Generator().manual_seed(0), **options)
        self._batches = batches
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        # A traceback can hold an iterator, and so its workers, for longer than the trial lasts.
        self._finalizer = weakref.finalize(self, _end_workers, self._iterators)

    def __iter__(self) -> Any:
        iterator = super().__iter__()
        self._iterators.add(iterator)
        self._batches.epoch += 1
        return iterator

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration gives; each iteration adds one to it.

        Args:
            epoch: The number of the epoch. The first iteration of a new loader gives epoch 1.
        """
        self._batches.epoch = epoch

    def close(self) -> None:
        """Ends the worker processes and waits for their end; another iteration would start new ones."""
        self._iterator = None
        _end_workers(self._iterators)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def loader(
    dataset: Dataset[Any],
    batch_size: int,
    *,
    cpus: float,
    num_workers: int | Literal["auto"] = "auto",
    pin_memory: bool | Literal["auto"] = "auto",
    shuffle: bool = True,
    seed: int = 0,
    cache_dir: Path | str | None = None,
    drop_last: bool = False,
    sampler: Iterable[int] | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    prefetch_factor: int = 2,
    worker_init: Callable[[int], object] | None = None,
    context: Literal["forkserver", "spawn", "fork"] = "forkserver",
    name: str = "",
) -> Loader:
    """Makes a loader whose batches do not depend on the number of its workers.

    With "auto", it times 0, 1, 2, 4, ... workers on random batches of `dataset`, takes the fastest, prints one line and
    keeps the result on this node. Other trials wait for the measurement and use its result. It times the loading alone:
    if the training itself keeps all `cpus` busy, give 0.

    Args:
        dataset: The data set, with `__getitem__` and `__len__`. Workers get it by pickle, so its class must be in a
            module that can be imported. Each worker imports this module, so keep Ray out of it.
        batch_size: Samples in a batch.
        cpus: The CPUs of this trial; a fraction is rounded down. There are at most so many workers.
        num_workers: Worker processes; 0 loads in the training's process.
        pin_memory: Whether batches are in page-locked memory; "auto" is yes if there is a GPU.
        shuffle: Whether every epoch has an order of its own; False for the order of the data set.
        seed: Seed of the order and of the random numbers that `dataset` draws.
        cache_dir: The folder of the measurements; None for `loading` in `$TUNER_DATA`, else in `~/.cache/tuner`.
        drop_last: Whether a last batch of fewer samples is left out.
        sampler: The indices of an epoch, instead of `shuffle`. Before each epoch its `set_epoch` is called, and its
            `generator` gets a seed made of `seed` and the epoch, if it has these.
        collate_fn: Makes a batch of a list of samples, as in DataLoader.
        prefetch_factor: Batches that each worker loads ahead.
        worker_init: Is called in each worker when it starts, with the number of the worker.
        context: How workers start. "fork" needs no pickle, and can hang in a process with several threads.
        name: Tells data sets apart that have the same class and length but different costs.

    Returns:
        The loader; its `num_workers` is what was chosen.

    Raises:
        ValueError: If there would be more workers than CPUs, if the data set is empty or has no length, or if a
            number is out of its range.

    Example:
        >>> import torch
        >>> from tuner.training.loading import loader
        >>> with loader(torch.utils.data.TensorDataset(torch.arange(5)), 2, cpus=1, num_workers=0) as batches:
        ...     first = [batch.tolist() for (batch,) in batches]
        ...     batches.set_epoch(1)
        ...     first == [batch.tolist() for (batch,) in batches]
        True
    """
    _check(dataset, batch_size, cpus, prefetch_factor, num_workers)
    limit = math.floor(cpus)
    size = len(cast(Sized, dataset))
    seeded = SeededDataset(dataset, seed)

    def made(workers: int, batches: Batches, pinned: bool) -> Loader:
        options: dict[str, Any] = {}
        if workers:
            options = {
                "multiprocessing_context": _context(context),
                "persistent_workers": True,
                "prefetch_factor": prefetch_factor,
                "worker_init_fn": _WorkerStart(worker_init),
            }
        return Loader(
            seeded, batches, num_workers=workers, pin_memory=pinned, collate_fn=cast(Any, collate_fn), **options
        )

    if num_workers == "auto":
        key = {
            "name": name,
            "class": f"{type(dataset).__module__}.{type(dataset).__qualname__}",
            "length": size,
            "batch_size": batch_size,
            "cpus": limit,
            "node": platform.node(),
            "torch": torch.__version__,
        }

        def rate(workers: int) -> float:
            with made(workers, EndlessBatches(size, batch_size, seed), False) as timed:
                return batch_size * batches_per_second(timed, workers, warm=max(1, workers * prefetch_factor))

        num_workers = choose_workers(key, limit, rate, measurements_folder(cache_dir))
    pinned = torch.cuda.is_available() if pin_memory == "auto" else pin_memory
    return made(num_workers, Batches(size, batch_size, seed, shuffle, drop_last, sampler), pinned)


def _check(
    dataset: Dataset[Any], batch_size: int, cpus: float, prefetch_factor: int, num_workers: int | Literal["auto"]
) -> None:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise ValueError(
            f"dataset: {type(dataset).__name__} has no length, and its order cannot be set; use DataLoader"
        )
    if len(cast(Sized, dataset)) == 0:
        raise ValueError(f"dataset: {type(dataset).__name__} is empty")
    for name, value in (("batch_size", batch_size), ("prefetch_factor", prefetch_factor)):
        if value < 1:
            raise ValueError(f"{name}: {value}, must be at least 1")
    if not 0 <= cpus < math.inf:
        raise ValueError(f"cpus: {cpus}, must be 0 or more")
    if num_workers == "auto":
        return
    if not isinstance(num_workers, int) or num_workers < 0:
        raise ValueError(f"num_workers: {num_workers!r}, must be 'auto', 0 or more")
    if num_workers > math.floor(cpus):
        raise ValueError(f"num_workers: {num_workers}, but the trial has {cpus:g} CPUs; give it more CPUs, or 'auto'")


def _context(name: str) -> multiprocessing.context.BaseContext:
    """How workers start: from a server process, by default.

    Ray runs a trial in a thread of a process with some twenty others (gRPC, the object store). A fork copies that
    process with this one thread, and every lock that another thread holds at this moment stays locked in the copy for
    ever. So "fork" works nearly always, and hangs the rest of the time. "spawn" imports torch anew in each worker: 5 s
    to the first batch of two workers in a Ray trial on two cores. The server of "forkserver" imports torch once and has
    a single thread: 4 s at its start, 0.8 s for the workers of each later loader; "fork" takes 0.2 s.
    """
    context = multiprocessing.get_context(name)
    if name == "forkserver":
        # Without "__main__", which is Ray's worker and would import Ray into the server.
        context.set_forkserver_preload(["torch", "numpy", "tuner.training.loading"])
    return context


class _WorkerStart:
    """Makes a worker end with the trial, then does what the user wants.

    A worker of torch ends when its parent does. The parent of a worker from a fork server is the server, which waits
    for its workers in turn: if the trial were killed, all of them would live for ever. The pipe that
    `multiprocessing.parent_process` watches is the trial's.
    """

    def __init__(self, then: Callable[[int], object] | None) -> None:
        self.then = then

    def __call__(self, number: int) -> None:
        threading.Thread(target=_end_with_the_trial, daemon=True).start()
        if self.then is not None:
            self.then(number)


def _end_with_the_trial() -> None:
    trial = multiprocessing.parent_process()
    if trial is not None:
        trial.join()
        os._exit(1)  # the main thread may be inside the data set


def _end_workers(iterators: Iterable[Any]) -> None:
    for iterator in list(iterators):
        shutdown = getattr(iterator, "_shutdown_workers", None)  # one without workers has none
        if shutdown is not None:
            shutdown()
