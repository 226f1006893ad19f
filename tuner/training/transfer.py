"""Transfer learning: which part of a network trains, and how fast.

    freeze(model, config.freeze, head="fc")
    optimizer = torch.optim.AdamW(layerwise_groups(model, config.lr, config.decay))
    checkpointing.save(folder, model=TrainableOnly(model), optimizer=optimizer, ...)

A frozen batch norm still collects its statistics in training mode, as these are buffers; call `eval` of the module to
stop that. After `thaw`, make a new optimizer: the old one does not know the thawed parameters.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from torch import Tensor, nn

Kind = Literal["none", "stem", "all_but_head"]

NOTHING = "a frozen model with nothing left to train"


def freeze(model: nn.Module, kind: Kind, head: str | None = None) -> list[str]:
    """Excludes a part of a network from training; what is frozen already stays so.

    - "none": nothing.
    - "stem": the first child module that has parameters.
    - "all_but_head": everything outside of the module `head`.

    Args:
        model: The network.
        kind: One of the three.
        head: The name of the last part, as `named_modules` gives it: "fc", "classifier.1"; for "all_but_head" only.

    Returns:
        The names of all frozen parameters.

    Raises:
        ValueError: If the kind is unknown, there is no such head, or nothing is left to train.

    Example:
        >>> import torch
        >>> from tuner.training.transfer import freeze
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
        >>> freeze(model, "all_but_head", head="2")
        ['0.weight', '0.bias']
    """
    if kind not in get_args(Kind):
        raise ValueError(f"freeze: {kind!r}; allowed: {', '.join(get_args(Kind))}")
    frozen: list[nn.Parameter] = []
    if kind == "stem":
        with_parameters = (list(child.parameters()) for child in model.children())
        frozen = next((parameters for parameters in with_parameters if parameters), [])
    elif kind == "all_but_head":
        kept = {id(p) for p in _module(model, head).parameters()}
        frozen = [p for p in model.parameters() if id(p) not in kept]
    ids = {id(p) for p in frozen}
    if not any(p.requires_grad and id(p) not in ids for p in model.parameters()):
        raise ValueError(f"freeze: {kind!r} makes {type(model).__name__} {NOTHING}")
    for parameter in frozen:
        parameter.requires_grad_(False)
    return _frozen(model)


def thaw(model: nn.Module) -> None:
    """Lets all parameters train again.

    Args:
        model: The network.
    """
    model.requires_grad_(True)


def trainable_state(model: nn.Module) -> dict[str, Tensor]:
    """Returns the state dict without the frozen parameters; it has all buffers.

    Args:
        model: The network.

    Returns:
        Tensors by name, as in `model.state_dict()`.

    Example:
        >>> import torch
        >>> from tuner.training.transfer import freeze, trainable_state
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
        >>> _ = freeze(model, "all_but_head", head="2")
        >>> list(trainable_state(model))
        ['1.running_mean', '1.running_var', '1.num_batches_tracked', '2.weight', '2.bias']
    """
    left_out = set(_frozen(model))
    return {name: value for name, value in model.state_dict().items() if name not in left_out}


def load_trainable_state(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Puts back what `trainable_state` gave; the frozen parameters stay, if the state does not have them.

    Args:
        model: The network, with the frozen parameters that it had, and frozen as it was or more.
        state: What `trainable_state` returned.

    Raises:
        ValueError: If the state lacks a parameter that trains here, or has one that the network lacks.
    """
    own, needed = model.state_dict(), trainable_state(model)
    missing, foreign = [n for n in needed if n not in state], [n for n in state if n not in own]
    if missing:
        raise ValueError(f"state: lacks {_few(missing)}; freeze the model as it was when the state was written")
    if foreign:
        raise ValueError(f"state: has {_few(foreign)}, which {type(model).__name__} lacks")
    model.load_state_dict(state, strict=False)


class TrainableOnly(nn.Module):
    """A network whose state dict is `trainable_state`, for the argument `model` of `checkpointing.save` and `restore`.

    Args:
        model: The network; it is called and trained through this wrapper or directly, as you like.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:  # type: ignore[override]
        """Returns `trainable_state` of the network."""
        return trainable_state(self.model)

    def load_state_dict(self, state_dict: Mapping[str, Any], *_: Any, **__: Any) -> Any:
        """Calls `load_trainable_state`.

        Args:
            state_dict: What `state_dict` returned.

        Returns:
            None.
        """
        load_trainable_state(self.model, state_dict)


def layerwise_groups(
    model: nn.Module, lr: float, decay: float, layers: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Makes groups for an optimizer in which later layers have larger learning rates.

    The last layer gets `lr`, the one before it `lr * decay`, and so forth (J. Howard and S. Ruder, "ULMFiT", 2018).
    Layers without trainable parameters do not count. Parameters outside of all layers belong to the first.

    Args:
        model: The network.
        lr: The learning rate of the last layer.
        decay: The factor from a layer to the one before; 1 for equal rates.
        layers: Names of modules from first to last, as `named_modules` gives them; None for the children of `model`.

    Returns:
        A group for each layer, from first to last; frozen parameters are in none.

    Raises:
        ValueError: If `lr` or `decay` is out of its range, a layer is unknown, or nothing is left to train.

    Example:
        >>> import torch
        >>> from tuner.training.transfer import layerwise_groups
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
        >>> [group["lr"] for group in layerwise_groups(model, lr=0.1, decay=0.5)]
        [0.05, 0.1]
    """
    if not lr > 0:
        raise ValueError(f"lr: {lr}, must be above 0")
    if not 0 < decay <= 1:
        raise ValueError(f"decay: {decay}, must be above 0 and at most 1")
    modules = list(model.children()) if layers is None else [_module(model, name) for name in layers]
    taken: set[int] = set()
    parts: list[list[nn.Parameter]] = []
    for module in modules:
        part = [p for p in module.parameters() if p.requires_grad and id(p) not in taken]
        taken |= {id(p) for p in part}
        if part:
            parts.append(part)
    outside = [p for p in model.parameters() if p.requires_grad and id(p) not in taken]
    if outside:
        parts[:1] = [outside + (parts[0] if parts else [])]
    if not parts:
        raise ValueError(f"{type(model).__name__} is {NOTHING}")
    last = len(parts) - 1
    return [{"params": part, "lr": lr * decay ** (last - k)} for k, part in enumerate(parts)]


def _frozen(model: nn.Module) -> list[str]:
    """All names of the frozen parameters: a shared one has several."""
    return [name for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad]


def _module(model: nn.Module, name: str | None) -> nn.Module:
    known: dict[str, nn.Module] = dict(model.named_modules())
    if not name or name not in known:
        children = [child for child, _ in model.named_children()]
        wrong = "needs the name of its head" if name is None else f"has no module {name!r}"
        raise ValueError(f"{type(model).__name__} {wrong}; its children: {_few(children) or 'none'}")
    return known[name]


def _few(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
