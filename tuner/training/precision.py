"""Number formats of a training behind one class, whose state belongs into the checkpoint.

    precision = Precision(config.precision, device)
    for x, y in batches:
        with precision.autocast():
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        precision.backward(loss)
        precision.step(optimizer, model, max_norm=1.0)
    checkpointing.save(folder, scaler=precision, ...)

With every format but fp16 the scaler does nothing, so that the same loop serves all of them.
"""

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from tuner.training.device import fastest_precision
from tuner.training.regularization import clip_gradients

Kind = Literal["fp32", "tf32", "bf16", "fp16", "auto"]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """The number format of one training, with one optimizer.

    - "fp32": 32 bits everywhere; also turns TF32 off, which torch uses for convolutions on a GPU by default.
    - "tf32": 32 bits, of which a GPU multiplies 19; GPUs of Ampere or later only.
    - "bf16", "fp16": 16 bits where autocast chooses them. Weights and gradients have 32. "fp16" scales the loss.
    - "auto": "bf16" or "fp32", as `tuner.training.device.fastest_precision` decides.

    On a GPU, whether TF32 is on is a setting of the process. Each new object sets it.

    Args:
        kind: One of the five.
        device: The device that trains.

    Raises:
        ValueError: If the kind is unknown, or this device cannot train in it.

    Example:
        >>> import torch
        >>> from tuner.training.precision import Precision
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> precision = Precision("bf16", torch.device("cpu"))
        >>> with precision.autocast():
        ...     y = model(torch.ones(4, 2))
        >>> precision.backward(y.float().mean())
        >>> norm = precision.step(optimizer, model, max_norm=1.0)
        >>> y.dtype, model.weight.grad.dtype
        (torch.bfloat16, torch.float32)
    """

    def __init__(self, kind: Kind, device: torch.device) -> None:
        if kind not in get_args(Kind):
            raise ValueError(f"precision: {kind!r}; allowed: {', '.join(get_args(Kind))}")
        self.kind = fastest_precision(device) if kind == "auto" else kind
        self.device = device
        if self.kind == "tf32" and not _has_tf32(device):
            raise ValueError(f"precision: 'tf32' needs a GPU of Ampere or later, not {device}; choose fp32 or bf16")
        if self.kind == "fp16" and device.type == "cpu":
            problem = _problem_of_fp16_on_the_cpu()
            if problem:
                raise ValueError(f"precision: torch cannot train in 'fp16' on this CPU ({problem}); choose bf16")
        if device.type == "cuda":
            _set_tf32(self.kind == "tf32")
        self._scaler = torch.amp.GradScaler(device.type, enabled=self.kind == "fp16")

    def autocast(self) -> torch.autocast:
        """Returns the context in which the model and the loss are computed; `backward` belongs outside."""
        dtype = DTYPES.get(self.kind)
        return torch.autocast(self.device.type, dtype or torch.bfloat16, enabled=dtype is not None)

    def backward(self, loss: Tensor) -> None:
        """Computes the gradients of a loss, which fp16 scales.

        Args:
            loss: A scalar; the gradients of several calls add up.
        """
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def step(
        self, optimizer: torch.optim.Optimizer, model: nn.Module | None = None, max_norm: float | None = None
    ) -> Tensor | None:
        """Unscales the gradients, clips them, and takes a step of the optimizer.

        With fp16 there is no step if a gradient overflows; the scale is halved instead.

        Args:
            optimizer: The optimizer.
            model: The network, to clip and to measure its gradients.
            max_norm: The largest norm of the gradients; None for no limit.

        Returns:
            The norm of the unscaled gradients before clipping; None without `model`.

        Raises:
            ValueError: If there is a `max_norm` without a `model`, or if it is not above 0.
        """
        if max_norm is not None and model is None:
            raise ValueError(f"max_norm: {max_norm}, but without the model; pass it too")
        norm = None
        if model is not None:
            self._scaler.unscale_(optimizer)
            norm = clip_gradients(model, max_norm)
        self._scaler.step(optimizer)
        self._scaler.update()
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Returns the scale of fp16 and how long it has held; empty for the other formats."""
        return self._scaler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave. The state of another format changes nothing.

        Args:
            state_dict: What `state_dict` returned.
        """
        if state_dict and self._scaler.is_enabled():
            self._scaler.load_state_dict(state_dict)


def _has_tf32(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_available() and torch.cuda.get_device_capability(device) >= (8, 0)


def _set_tf32(on: bool) -> None:
    wanted = "tf32" if on else "ieee"
    torch.backends.cuda.matmul.fp32_precision = wanted
    torch.backends.cudnn.conv.fp32_precision = wanted  # type: ignore[attr-defined]
    torch.backends.cudnn.rnn.fp32_precision = wanted  # type: ignore[attr-defined]


def _problem_of_fp16_on_the_cpu() -> str:
    """Tries what a small network does; older versions of torch, and some processors, lack the one or the other."""
    x = torch.ones(2, 1, 4, 4)
    kernel, weight = (torch.full(shape, 0.1, requires_grad=True) for shape in ((1, 1, 3, 3), (1, 4)))
    try:
        with torch.autocast("cpu", torch.float16):
            y = nn.functional.linear(nn.functional.conv2d(x, kernel).flatten(1), weight)
        y.float().sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        return str(error).splitlines()[0][:200]
    return "" if y.dtype == torch.float16 else f"autocast computes in {y.dtype}"
