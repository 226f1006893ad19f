"""Ways to keep a network from learning its training data by heart.

Weights here are the parameters that L1, L2 and weight decay are meant for: neither biases nor the scales and offsets of
norm layers. The other parameters decide the level of an activation, not how complicated the function is.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

# The other norm layers have parameters of one dimension only.
NORMS = (nn.LayerNorm, nn.RMSNorm)

Mix = Literal["none", "mixup", "cutmix"]


def weights(model: nn.Module) -> list[nn.Parameter]:
    """Returns the trainable parameters that are neither biases nor of a norm layer, each once.

    A parameter of fewer than two dimensions counts as a bias, whatever its name; so does one with the name "bias".

    Args:
        model: The network.

    Returns:
        The parameters, in the model's order.
    """
    others = {
        id(parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if isinstance(module, NORMS) or name == "bias"
    }
    return [p for p in model.parameters() if p.requires_grad and p.ndim > 1 and id(p) not in others]


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Divides the trainable parameters into those with and those without weight decay, for an optimizer.

    `torch.optim.SGD` and `Adam` add the decay to the gradient (L2), `AdamW` takes it from the weights (decoupled; I.
    Loshchilov and F. Hutter, 2019).

    Args:
        model: The network.
        weight_decay: The decay of the weights; biases and norm layers get 0.

    Returns:
        Two groups: with and without decay. An empty one is left out.

    Raises:
        ValueError: If `weight_decay` is below 0 or not a number.

    Example:
        >>> import torch
        >>> from tuner.training.regularization import parameter_groups
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
        >>> optimizer = torch.optim.AdamW(parameter_groups(model, 0.05))
        >>> [(len(group["params"]), group["weight_decay"]) for group in optimizer.param_groups]
        [(1, 0.05), (3, 0.0)]
    """
    _check("weight_decay", weight_decay)
    decayed = weights(model)
    ids = {id(p) for p in decayed}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in ids]
    groups = ({"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0})
    return [group for group in groups if group["params"]]


def penalty(model: nn.Module, l1: float = 0.0, l2: float = 0.0) -> Tensor:
    """Returns `l1` times the sum of the weights' sizes plus `l2` / 2 times the sum of their squares.

    With one factor it is L1 (lasso) or L2 (ridge), with both an elastic net. For SGD, `l2` does the same as its weight
    decay.

    Args:
        model: The network.
        l1: The factor of the absolute values.
        l2: The factor of the squares.

    Returns:
        A scalar to add to the loss; 0 if both factors are.

    Raises:
        ValueError: If a factor is below 0, or above 0 for a model that has no weights to train.

    Example:
        >>> import torch
        >>> from tuner.training.regularization import penalty
        >>> model = torch.nn.Linear(2, 1)
        >>> _ = torch.nn.init.constant_(model.weight, -3.0)
        >>> round(penalty(model, l1=0.1, l2=0.01).item(), 4)
        0.69
    """
    _check("l1", l1)
    _check("l2", l2)
    first = next(model.parameters(), None)
    total = torch.zeros((), device=None if first is None else first.device)
    if l1 == 0 and l2 == 0:
        return total
    punished = weights(model)
    if not punished:
        raise ValueError(f"l1: {l1:g}, l2: {l2:g}, but {type(model).__name__} has no weights to train; set both to 0")
    for weight in punished:
        if l1:
            total = total + l1 * weight.abs().sum()
        if l2:
            total = total + l2 / 2 * weight.square().sum()
    return total


def clip_gradients(model: nn.Module, max_norm: float | None) -> Tensor:
    """Scales all gradients down together, if their norm is above `max_norm`.

    Args:
        model: The network, after `backward`. With fp16 the gradients must be unscaled first: see `Precision.step`.
        max_norm: The largest norm; None only measures.

    Returns:
        The norm before, a scalar on the device of the gradients; 0 if there are none.

    Raises:
        ValueError: If `max_norm` is not above 0.

    Example:
        >>> import torch
        >>> from tuner.training.regularization import clip_gradients
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> model.weight.grad = torch.tensor([[3.0, 4.0]])
        >>> clip_gradients(model, 1.0).item(), round(clip_gradients(model, None).item(), 4)
        (5.0, 1.0)
    """
    if max_norm is not None and not max_norm > 0:
        raise ValueError(f"max_norm: {max_norm}, must be above 0, or None")
    parameters = [p for p in model.parameters() if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if max_norm is not None:
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


class Ema:
    """The exponential moving average of a model's parameters and buffers, which often scores better than the model.

    The first update copies. Whole numbers among the buffers (batch norm counts its batches) are copied each time.

    Args:
        model: The network that is trained; it is not changed.
        decay: The share of the average that an update keeps.

    Raises:
        ValueError: If `decay` is not in [0, 1).

    Example:
        >>> import torch
        >>> from tuner.training.regularization import Ema
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.constant_(model.weight, 1.0)
        >>> ema = Ema(model, decay=0.75)
        >>> ema.update()
        >>> _ = torch.nn.init.constant_(model.weight, 3.0)
        >>> ema.update()
        >>> with ema.applied():
        ...     model.weight.item()
        1.5
        >>> model.weight.item()
        3.0
    """

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay: {decay}, must be in [0, 1)")
        self.model = model
        average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        self._averaged = AveragedModel(model, multi_avg_fn=average, use_buffers=True)

    @torch.no_grad()
    def update(self) -> None:
        """Takes the model's present weights into the average: call it after each step of the optimizer."""
        self._averaged.update_parameters(self.model)
        # AveragedModel averages whole numbers too, and rounds them.
        for kept, now in self._pairs():
            if not now.is_floating_point():
                kept.copy_(now)

    @property
    def averaged(self) -> nn.Module:
        """The averaged model."""
        return self._averaged.module

    @contextlib.contextmanager
    def applied(self) -> Iterator[nn.Module]:
        """Exchanges the model's weights for their average, and changes them back at the end of the block.

        Yields:
            The model.
        """
        self._exchange()
        try:
            yield self.model
        finally:
            self._exchange()

    def state_dict(self) -> dict[str, Any]:
        """Returns the average and the number of updates, as tensors."""
        return self._averaged.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave; the decay stays as it is.

        Args:
            state_dict: What `state_dict` returned for a model of the same shape.
        """
        self._averaged.load_state_dict(state_dict)

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(self.averaged.parameters(), self.model.parameters(), strict=True)
        yield from zip(self.averaged.buffers(), self.model.buffers(), strict=True)

    @torch.no_grad()
    def _exchange(self) -> None:
        for kept, now in self._pairs():
            saved = now.clone()
            now.copy_(kept)
            kept.copy_(saved)


class Mixed(NamedTuple):
    """A batch after `mix_batch`.

    Its loss is `weight * loss(model(x), first) + (1 - weight) * loss(model(x), second)`.

    Attributes:
        x: The inputs.
        first: The targets of the samples themselves.
        second: The targets of the samples that are mixed in.
        weight: The share of the samples themselves, from 0 to 1.
    """

    x: Tensor
    first: Tensor
    second: Tensor
    weight: float


def mix_batch(x: Tensor, y: Tensor, kind: Mix, alpha: float, generator: torch.Generator) -> Mixed:
    """Mixes each sample of a batch with another one.

    "mixup" averages the inputs (H. Zhang and others, 2018). "cutmix" replaces a rectangle of an image (S. Yun and
    others, 2019); the weight is the share of the area that stays.

    Args:
        x: The inputs; for "cutmix", images of shape N x C x H x W.
        y: The targets, one a sample.
        kind: "none", "mixup" or "cutmix".
        alpha: Both parameters of the beta distribution of the weight; above 0, mixes more the larger it is.
        generator: Draws on the CPU, whatever the device of `x`; save its state with the checkpoint.

    Returns:
        The inputs, two targets and the weight of the first; `x` itself is not changed.

    Raises:
        ValueError: If the kind is unknown, `alpha` is not above 0, or "cutmix" gets no images.

    Example:
        >>> import torch
        >>> from tuner.training.regularization import mix_batch
        >>> x, y = torch.eye(4), torch.arange(4)
        >>> mixed = mix_batch(x, y, "mixup", 1.0, torch.Generator().manual_seed(0))
        >>> bool(torch.allclose(mixed.x, mixed.weight * x[mixed.first] + (1 - mixed.weight) * x[mixed.second]))
        True
    """
    if kind not in get_args(Mix):
        raise ValueError(f"kind: {kind!r}; allowed: {', '.join(get_args(Mix))}")
    if kind == "none":
        return Mixed(x, y, y, 1.0)
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha: {alpha}, must be above 0")
    if kind == "cutmix" and x.ndim != 4:
        raise ValueError(f"cutmix: x has shape {tuple(x.shape)}, must be N x C x H x W")
    order = torch.randperm(len(x), generator=generator).to(x.device)
    weight = _beta(alpha, generator)
    if kind == "mixup":
        return Mixed(torch.lerp(x[order], x, weight), y, y[order], weight)
    height, width = x.shape[-2:]
    side = math.sqrt(1 - weight)
    top, bottom = _interval(height, side, generator)
    left, right = _interval(width, side, generator)
    mixed = x.clone()
    mixed[:, :, top:bottom, left:right] = x[order, :, top:bottom, left:right]
    return Mixed(mixed, y, y[order], 1 - (bottom - top) * (right - left) / (height * width))


def _beta(alpha: float, generator: torch.Generator) -> float:
    """A number from the beta distribution with both parameters `alpha`."""
    # torch.distributions takes no generator.
    pair = torch._standard_gamma(torch.full((2,), alpha, dtype=torch.float64), generator=generator)
    total = float(pair.sum())
    # A tiny alpha rounds both to 0; its distribution is one of the ends.
    return float(pair[0]) / total if total > 0 else float(torch.randint(2, (), generator=generator))


def _interval(length: int, share: float, generator: torch.Generator) -> tuple[int, int]:
    """A part of about `share` of `length` with a random centre, cut at the ends."""
    centre = int(torch.randint(length, (), generator=generator))
    half = int(length * share) // 2
    return max(centre - half, 0), min(centre + half, length)


def _check(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise ValueError(f"{name}: {value}, must be 0 or more")
