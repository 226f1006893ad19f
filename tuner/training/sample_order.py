"""The order of the samples of an epoch, and the random numbers that a data set draws for each of them.

Both follow from a seed, the epoch and the sample, and not from the process that loads. `tuner.training.loading` uses
them.
"""

import contextlib
import hashlib
import math
import random
from collections.abc import Iterable, Iterator, Sized
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler


class Key(NamedTuple):
    """The order for one sample. It carries the epoch, as persistent workers keep their copy of the data set."""

    epoch: int
    position: int  # in the order of the epoch: a sample that is drawn twice is augmented in two ways
    sample: int


class Batches(Sampler[list[Key]]):
    """The batches of an epoch, a function of `seed` and `epoch`.

    Args:
        size: Samples of the data set.
        batch_size: Samples in a batch.
        seed: Seed of the order.
        shuffle: Whether every epoch has an order of its own.
        drop_last: Whether a last batch of fewer samples is left out.
        sampler: The indices of an epoch, instead of `shuffle`.

    Example:
        >>> from tuner.training.sample_order import Batches
        >>> [[key.sample for key in batch] for batch in Batches(5, 2, seed=0, shuffle=False)]
        [[0, 1], [2, 3], [4]]
    """

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

    def _keys(self) -> list[Key]:
        """The samples of the epoch, in their order."""
        return [Key(self.epoch, position, index) for position, index in enumerate(self.order(self.epoch))]

    def __iter__(self) -> Iterator[list[Key]]:
        # Not a generator: the epoch counts when the iteration starts, not when it gives its first batch.
        keys = self._keys()
        end = len(keys) - len(keys) % self.batch_size if self.drop_last else len(keys)
        return (keys[k : k + self.batch_size] for k in range(0, end, self.batch_size))

    def __len__(self) -> int:
        samples = self.size if self.sampler is None else len(cast(Sized, self.sampler))
        return samples // self.batch_size if self.drop_last else math.ceil(samples / self.batch_size)


class EndlessBatches(Batches):
    """Batches to time: one order after the other, of full batches."""

    def __iter__(self) -> Iterator[list[Key]]:
        waiting: list[Key] = []
        while True:
            waiting += self._keys()
            self.epoch += 1
            while len(waiting) >= self.batch_size:
                yield waiting[: self.batch_size]
                del waiting[: self.batch_size]


class SeededDataset(Dataset[Any]):
    """A data set whose random numbers follow from the sample, and which leaves the process's own as they were."""

    def __init__(self, dataset: Dataset[Any], seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def __len__(self) -> int:
        return len(cast(Sized, self.dataset))

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, keys: list[Key]) -> list[Any]:
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
