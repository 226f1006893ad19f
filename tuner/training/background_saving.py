"""Checkpoints that are copied from the device and written while the training continues."""

import tempfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tuner.training import checkpointing, reporting


class BackgroundSaver:
    """Reports with checkpoints, and does not stop the training for them where that is safe.

    `report` copies a state that is on a GPU there, which takes milliseconds, and returns. A thread copies that to the
    host, writes it and makes the report, while the training continues. If the scheduler decides at a report, as at a
    rung, `report` waits: the trial may be stopped or paused there. It also waits for the report before.

    A copy needs as much memory on the GPU as the state takes. If there is not so much, the state is copied to the host
    at once. A state on the CPU is saved at once, as the thread would take the cores and the memory of the training
    (measured in tests/benchmarks/background_saving.py).

    Use it as a context, which waits for the last report.

    Example:
        >>> import torch
        >>> from tuner.training.background_saving import BackgroundSaver
        >>> model = torch.nn.Linear(3, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> with BackgroundSaver() as saver:
        ...     for epoch in (1, 2):
        ...         saver.report({"epoch": epoch, "loss": 1 / epoch}, epoch=epoch, model=model, optimizer=optimizer)
        epoch 1  loss 1
        epoch 2  loss 0.5
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "ray_checkpoint")
        self._pending: Future[None] | None = None
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def __enter__(self) -> "BackgroundSaver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._thread:
            if kind is None or issubclass(kind, Exception):  # else the trial has been stopped
                self._wait()

    def report(self, metrics: Mapping[str, Any], **state: Unpack[checkpointing.State]) -> None:
        """Waits for the report before, and begins this one.

        Args:
            metrics: What is reported: numbers and strings by name.
            **state: As of `checkpointing.save`.

        Raises:
            OSError: If the checkpoint of the report before could not be written.

        Example:
            >>> import torch
            >>> from tuner.training.background_saving import BackgroundSaver
            >>> model = torch.nn.Linear(3, 2)
            >>> with BackgroundSaver() as saver:
            ...     saver.report({"loss": 1.0}, epoch=1, model=model, optimizer=torch.optim.SGD(model.parameters()))
            loss 1
        """
        self._wait()
        metrics = dict(metrics)
        content = checkpointing.content(metrics, **state)
        waits = not is_on_gpu(content) or reporting.will_decide(metrics)
        events: list[torch.cuda.Event] = []
        if not waits:
            content = self._copied(content)
            events += [stream.record_event() for stream in self._streams.values()]

        def write() -> None:
            for event in events:  # all copies are on the host
                event.synchronize()
            with tempfile.TemporaryDirectory(prefix="tuner-checkpoint-") as folder:
                checkpointing.write(folder, content, durable=False)
                reporting.report(metrics, checkpoint=folder)

        if waits:
            write()
        else:
            self._pending = self._thread.submit(write)

    def _wait(self) -> None:
        """Raises what the report raised: also the `SystemExit` by which Ray ends a trial."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _copied(self, content: dict[str, Any]) -> dict[str, Any]:
        """``content`` with copies in place of its tensors."""
        copies: dict[Any, Tensor] = {}  # one of tensors that are the same memory, as tied weights are

        def copy(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            memory = value.untyped_storage().data_ptr() if value.layout is torch.strided else id(value)
            key = (value.device, memory, value.shape, value.layout is torch.strided and value.stride())
            if key not in copies:
                copies[key] = self._to_host(value.detach()) if value.is_cuda else value.detach().clone()
            return copies[key]

        copied: dict[str, Any] = pytree.tree_map(copy, content)
        return copied

    def _to_host(self, value: Tensor) -> Tensor:
        """A copy in pinned memory, which is complete when the stream of its device has come so far."""
        try:
            own = value.clone()
        except torch.OutOfMemoryError:
            return value.cpu()
        if value.device not in self._streams:
            self._streams[value.device] = torch.cuda.Stream(value.device)  # type: ignore[no-untyped-call]
        stream = self._streams[value.device]
        stream.wait_stream(torch.cuda.current_stream(value.device))
        host = torch.empty_like(own, device="cpu", pin_memory=True)
        with torch.cuda.stream(stream):
            host.copy_(own, non_blocking=True)
        own.record_stream(stream)  # its memory is free for others when it has been read
        return host


def is_on_gpu(content: dict[str, Any]) -> bool:
    """Whether a tensor of a checkpoint is on a GPU."""
    return any(isinstance(value, Tensor) and value.is_cuda for value in pytree.tree_leaves(content))
