"""Gradient accumulation: a batch in parts that fit into the memory, with the steps of the optimizer unchanged."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Accumulation:
    """A batch in equal parts.

    Attributes:
        micro_batch: Examples that go through the network at once, in each process.
        steps: Parts whose gradients add up to one step of the optimizer.
    """

    micro_batch: int
    steps: int


def accumulation(batch_size: int, micro_batch: int | None = None, processes: int = 1) -> Accumulation:
    """Divides a batch into equal parts of at most ``micro_batch`` examples.

    Args:
        batch_size: Examples a step of the optimizer, over all processes.
        micro_batch: Examples in memory at once in a process; None for no limit.
        processes: How many processes train the model.

    Returns:
        The largest equal parts: they may be smaller than ``micro_batch``, so that none is cut.

    Raises:
        ValueError: If a number is below 1, or ``batch_size`` is not a multiple of ``processes``.

    Example:
        >>> from tuner.training.accumulation import accumulation
        >>> accumulation(100, micro_batch=30)
        Accumulation(micro_batch=25, steps=4)
    """
    for name, value in (("batch_size", batch_size), ("micro_batch", micro_batch), ("processes", processes)):
        if value is not None and value < 1:
            raise ValueError(f"{name}: {value}, must be at least 1")
    if batch_size % processes:
        raise ValueError(f"batch_size: {batch_size}, must be a multiple of the {processes} processes")
    own = batch_size // processes
    largest = own if micro_batch is None else min(micro_batch, own)
    size = next(size for size in range(largest, 0, -1) if own % size == 0)
    return Accumulation(size, own // size)
