"""Training one model in several processes: what a trainable needs for `resources: {workers: N}`.

    with distributed.group() as group:
        model = group.model(build(config))
        ...
        share, weight = group.share(batch)          # this process's part of a global batch
        loss = weight * F.cross_entropy(model(x[share]), y[share])
        ...
        if group.is_first:                          # the first process reports, and it alone
            tune.report(...)

In one process (a group of one) all of this does nothing, so that the same function runs everywhere: alone, under tuner
with any number of workers, and under `torchrun`. The processes find each other by torchrun's environment variables.

Every process calls the trainable with the same configuration. The global batch stays the same: each of N workers takes
an N-th of it. So learning rate and result stay the same, except for rounding, batch norm (which sees the part only) and
random numbers that are drawn for each example, such as dropout.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist

T = TypeVar("T")

BACKEND = "TUNER_DISTRIBUTED_BACKEND"
"""The environment variable of the backend that all processes of a group take, if it is not the usual one."""


@dataclass(frozen=True)
class Group:
    """The processes that train one model; `group` makes it.

    Attributes:
        rank: The number of this process, from 0.
        size: How many processes there are; 1 if the trial has no `workers`.
        device: The device of this process.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process reports and writes checkpoints."""
        return self.rank == 0

    def model(self, model: nn.Module) -> nn.Module:
        """Moves `model` to this process's device and makes its gradients the mean over all processes.

        All processes start from the weights of the first. Save the `model` that you passed in, not the returned one.

        Args:
            model: The network.

        Returns:
            The network to call in training; `model` itself in a group of one.
        """
        model = model.to(self.device)
        return nn.parallel.DistributedDataParallel(model) if self.size > 1 else model

    def share(self, batch: Tensor) -> tuple[Tensor, float]:
        """Gives this process's part of a global batch, and the factor for the mean loss over that part.

        With the factor the mean over all processes is the mean over the batch, even if the batch is not a multiple of
        their number. A process for which nothing is left gets one index with factor 0: it must take part nevertheless.

        Args:
            batch: The indices of the global batch, the same in every process.

        Returns:
            The indices of this process, and the factor.

        Example:
            >>> import torch
            >>> from tuner.training.distributed import Group
            >>> Group(rank=1, size=2, device=torch.device("cpu")).share(torch.arange(5))
            (tensor([1, 3]), 0.8)
        """
        share = batch[self.rank :: self.size]
        if len(share) == 0:
            return batch[:1], 0.0
        return share, len(share) * self.size / len(batch)

    def mean(self, value: Tensor) -> Tensor:
        """Averages a value over all processes; each of them must call this.

        Args:
            value: A tensor of the same shape in every process, on `device`.

        Returns:
            The mean, without gradient.
        """
        if self.size == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total / self.size

    def from_first(self, make: Callable[[], T]) -> T:
        """Gives every process what `make` returns in the first; only the first calls it.

        Args:
            make: Makes the value, which must be possible to pickle.

        Returns:
            The value.

        Example:
            >>> from tuner.training import distributed
            >>> with distributed.group() as group:
            ...     group.from_first(lambda: "what is on the disk")
            'what is on the disk'
        """
        if self.size == 1:
            return make()
        held: list[Any] = [make() if self.is_first else None]
        dist.broadcast_object_list(held)
        value: T = held[0]
        return value

    def gather(self, value: T) -> list[T]:
        """Collects a value from every process in the first; each of them must call this.

        Args:
            value: The value of this process, which must be possible to pickle.

        Returns:
            The values of all processes by rank; empty in all but the first.

        Example:
            >>> from tuner.training import distributed
            >>> with distributed.group() as group:
            ...     group.gather("mine")
            ['mine']
        """
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.is_first else None
        dist.gather_object(value, values)
        return values or []

    def seed(self, *parts: int) -> None:
        """Seeds torch in all processes but the first, each with a seed of its own.

        Call it before each epoch, as `group.seed(config.seed, epoch)`: only the first one's random state is in a
        checkpoint, so that the others' must not depend on what was before. The first one's stays as it is.

        Args:
            *parts: Numbers that the seed depends on.
        """
        if not self.is_first:
            torch.manual_seed(hash((self.rank, *parts)) % 2**63)


def joined() -> Group:
    """The group that this process is in already: one that a framework has formed, as Lightning and Accelerate do.

    Returns:
        That group; a group of one if there is none.

    Example:
        >>> from tuner.training import distributed
        >>> distributed.joined().size
        1
    """
    if not (dist.is_available() and dist.is_initialized()):
        return Group(0, 1, _device())
    return Group(dist.get_rank(), dist.get_world_size(), _device())


@contextlib.contextmanager
def group() -> Iterator[Group]:
    """Joins the group that this process's environment describes; a group of one if it describes none.

    The processes talk by NCCL if each has a GPU of its own, else by gloo.

    Yields:
        The group.

    Example:
        >>> from tuner.training import distributed
        >>> with distributed.group() as group:
        ...     group.is_first, group.size
        (True, 1)
    """
    size = int(os.environ.get("WORLD_SIZE", 1))
    if size == 1:
        yield Group(0, 1, _device())
        return
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        torch.cuda.set_device(_device())
    beside = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    has_own = has_gpu and torch.cuda.device_count() >= beside
    dist.init_process_group(os.environ.get(BACKEND, "nccl" if has_own else "gloo"))
    try:
        yield joined()
    finally:
        dist.destroy_process_group()


def _device() -> torch.device:
    """The device of this process: of the GPUs that it sees, the one with its number on the node."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # a process that shares its GPU with another one sees that GPU only
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
