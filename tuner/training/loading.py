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

import contextlib
import fcntl
import hashlib
import json
import math
import multiprocessing
import multiprocessing.context
import os
import pickle
import platform
import random
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

ENOUGH_SECONDS = 0.5  # of measurement for each number of workers, after the workers' start
ENOUGH_BATCHES = 100
WORTH_A_WORKER = 1.05  # more workers must be faster by this factor


class Loader(DataLoader[Any]):
    """A DataLoader with an epoch and an end; `loader` makes it.

    Its `dataset` wraps yours, which is `dataset.dataset`. Its `batch_size` is None, as for every DataLoader with a
    sampler of batches; the size is `batch_sampler.batch_size`.
    """

    def __init__(self, dataset: "_Seeded", batches: "_Batches", **options: Any) -> None:
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
    seeded = _Seeded(dataset, seed)

    def made(workers: int, batches: _Batches, pinned: bool) -> Loader:
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
            with made(workers, _Endless(size, batch_size, seed), False) as timed:
                return batch_size * _batches_per_second(timed, workers, warm=max(1, workers * prefetch_factor))

        num_workers = _chosen(key, limit, rate, _folder(cache_dir))
    pinned = torch.cuda.is_available() if pin_memory == "auto" else pin_memory
    return made(num_workers, _Batches(size, batch_size, seed, shuffle, drop_last, sampler), pinned)


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


# ------------------------------------------------------------------------------ order and random numbers


class _Key(NamedTuple):
    """The order for one sample. It carries the epoch, as persistent workers keep their copy of the data set."""

    epoch: int
    position: int  # in the order of the epoch: a sample that is drawn twice is augmented in two ways
    sample: int


class _Batches(Sampler[list[_Key]]):
    """The batches of an epoch, a function of `seed` and `epoch`."""

    def __init__(
        self,
        size: int,
        batch_size: int,
        seed: int,
        shuffle: bool = True,
        drop_last: bool = False,
        sampler: Iterable[int] | None = None,
    ) -> None:
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.shuffle, self.drop_last, self.sampler = shuffle, drop_last, sampler
        self.epoch = 1

    def order(self, epoch: int) -> list[int]:
        """The indices of an epoch."""
        if self.sampler is None and not self.shuffle:
            return list(range(self.size))
        generator = getattr(self.sampler, "generator", None) or torch.Generator()
        generator.manual_seed(_numbers(self.seed, epoch)[0])
        if self.sampler is None:
            return cast(list[int], torch.randperm(self.size, generator=generator).tolist())
        set_epoch = getattr(self.sampler, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
        return [int(index) for index in self.sampler]

    def __iter__(self) -> Iterator[list[_Key]]:
        # Not a generator: the epoch counts when the iteration starts, not when it gives its first batch.
        keys = [_Key(self.epoch, position, index) for position, index in enumerate(self.order(self.epoch))]
        end = len(keys) - len(keys) % self.batch_size if self.drop_last else len(keys)
        return (keys[k : k + self.batch_size] for k in range(0, end, self.batch_size))

    def __len__(self) -> int:
        samples = self.size if self.sampler is None else len(cast(Sized, self.sampler))
        return samples // self.batch_size if self.drop_last else math.ceil(samples / self.batch_size)


class _Endless(_Batches):
    """Batches to time: one order after the other, of full batches."""

    def __iter__(self) -> Iterator[list[_Key]]:
        waiting: list[_Key] = []
        while True:
            waiting += [_Key(self.epoch, position, index) for position, index in enumerate(self.order(self.epoch))]
            self.epoch += 1
            while len(waiting) >= self.batch_size:
                yield waiting[: self.batch_size]
                del waiting[: self.batch_size]


class _Seeded(Dataset[Any]):
    """A data set whose random numbers follow from the sample, and which leaves the process's own as they were."""

    def __init__(self, dataset: Dataset[Any], seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def __len__(self) -> int:
        return len(cast(Sized, self.dataset))

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, keys: list[_Key]) -> list[Any]:
        """The samples of a batch."""
        with _as_in_a_worker():
            batched = getattr(self.dataset, "__getitems__", None)
            if batched is not None:
                _seed_all(self.seed, *keys[0])
                return cast(list[Any], batched([key.sample for key in keys]))
            samples = []
            for key in keys:
                _seed_all(self.seed, *key)
                samples.append(self.dataset[key.sample])
            return samples


def _numbers(*parts: int) -> tuple[int, int, int]:
    """Three seeds made of `parts`, below 2**63, 2**32 and 2**64."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=20).digest()
    first, second, third = (int.from_bytes(digest[a:b], "big") for a, b in ((0, 8), (8, 12), (12, 20)))
    return first >> 1, second, third


def _seed_all(*parts: int) -> None:
    for_torch, for_numpy, for_random = _numbers(*parts)
    torch.default_generator.manual_seed(for_torch)  # torch.manual_seed would seed the GPUs of the training too
    np.random.seed(for_numpy)
    random.seed(for_random)


@contextlib.contextmanager
def _as_in_a_worker() -> Iterator[None]:
    """With random numbers of its own, and with one thread: the number of threads shows in the last bits of sums."""
    threads = torch.get_num_threads()
    of_torch, of_numpy, of_random = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(of_torch)
        np.random.set_state(of_numpy)
        random.setstate(of_random)


# ------------------------------------------------------------------------------------- processes


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


# ----------------------------------------------------------------------------------- measurement


def _batches_per_second(batches: Loader, workers: int, warm: int) -> float:
    """The steady rate: the first batches contain the start of the workers, and what they loaded meanwhile."""
    iterator = iter(batches)
    for _ in range(warm):
        next(iterator)
    count, started = 0, time.perf_counter()
    while True:
        next(iterator)
        count += 1
        seconds = time.perf_counter() - started
        if count >= max(3, 2 * workers) and (seconds >= ENOUGH_SECONDS or count >= ENOUGH_BATCHES):
            return count / seconds


def _candidates(limit: int) -> list[int]:
    """0, 1, 2, 4, ... and the limit itself."""
    limit = min(limit, len(os.sched_getaffinity(0)))
    return sorted({0, limit} | {2**k for k in range(limit.bit_length())})


def _measured(limit: int, rate: Callable[[int], float]) -> tuple[dict[int, float], str]:
    """Samples a second for each number of workers, and why larger numbers are missing."""
    rates = {0: rate(0)}
    problem = ""
    for workers in _candidates(limit)[1:]:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Got pickle error")  # the line that is printed has it
                rates[workers] = rate(workers)
        except (RuntimeError, OSError, AttributeError, TypeError, pickle.PicklingError) as error:
            # 0 workers could load it: so it is the way to the workers (pickle, /dev/shm), not the data set.
            problem = f"; {workers} failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            break
    if len(rates) > 1:
        rates[0] = max(rates[0], rate(0))  # the first one also read files that the disk cache did not have
    return rates, problem


def _fastest(rates: dict[int, float]) -> int:
    """The number of workers with the best rate, the smaller one of two that are nearly equal."""
    best = max(rates.values())
    return min(workers for workers, rate in rates.items() if rate * WORTH_A_WORKER >= best)


def _chosen(key: dict[str, Any], limit: int, rate: Callable[[int], float], folder: Path) -> int:
    what = f"{key['class'].rpartition('.')[2]}, batch {key['batch_size']}"
    if _candidates(limit) == [0]:
        print(f"loader: 0 workers for {what}: less than one CPU", flush=True)
        return 0
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    file = folder / f"{digest}.json"
    with contextlib.ExitStack() as stack:
        found = _remembered(file, key, limit)
        if found is None:
            # One measurement at a time on a node. A folder that cannot be written is not remembered.
            with contextlib.suppress(OSError):
                stack.enter_context(_locked(folder))
            found = _remembered(file, key, limit)
        if found is not None:
            print(f"loader: {found} workers for {what}, as measured before ({file})", flush=True)
            return found
        rates, problem = _measured(limit, rate)
        found = _fastest(rates)
        with contextlib.suppress(OSError):
            _write(file, {"key": key, "num_workers": found, "samples_per_second": rates})
    table = ", ".join(f"{workers}: {rate:.0f}" for workers, rate in rates.items())
    print(f"loader: {found} workers for {what} (samples a second: {table}{problem})", flush=True)
    return found


def _folder(cache_dir: Path | str | None) -> Path:
    if cache_dir is None:
        cache_dir = Path(os.environ.get("TUNER_DATA") or "~/.cache/tuner") / "loading"
    return Path(cache_dir).expanduser()


def _remembered(file: Path, key: dict[str, Any], limit: int) -> int | None:
    try:
        content = json.loads(file.read_text())
        workers = content["num_workers"]
        valid = content["key"] == key and type(workers) is int and 0 <= workers <= limit
    except (OSError, ValueError, LookupError, TypeError):  # missing, damaged or foreign: measure again
        return None
    return workers if valid else None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "measuring.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the system releases it if this process dies
        yield


def _write(file: Path, content: dict[str, Any]) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "w") as stream:
            json.dump(content, stream)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
