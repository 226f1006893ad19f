"""The optimizers of several models of one shape, as one: each step computes all of them in the same calls."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

_OPTIONS = ("lr", "weight_decay", "momentum", "nesterov", "betas", "eps")


class OptimizerGroup:
    """A group of parameters of all models, and its optimizer state, as matrices of models x numbers.

    Args:
        names: Of the parameters that are trained, as a module has them.
        number: Of the group in each optimizer.
        modules: Models of one shape.
        optimizers: One for each.

    Example:
        >>> import torch
        >>> from tuner.training.stacked_optimizers import OptimizerGroup
        >>> models = [torch.nn.Linear(1, 1, bias=False) for _ in range(2)]
        >>> for model in models:
        ...     _ = torch.nn.init.constant_(model.weight, 1.0)
        >>> optimizers = [torch.optim.SGD(m.parameters(), lr=lr) for m, lr in zip(models, (0.1, 0.2))]
        >>> group = OptimizerGroup(["weight"], 0, models, optimizers)
        >>> group.step([torch.ones(2, 1, 1)])
        >>> group.write_back()
        >>> [round(model.weight.item(), 6) for model in models]
        [0.9, 0.8]
    """

    def __init__(
        self,
        names: list[str],
        number: int,
        modules: Sequence[nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
    ) -> None:
        self.names = names
        self._optimizers = list(optimizers)
        self._settings = [optimizer.param_groups[number] for optimizer in optimizers]
        own = [dict(module.named_parameters()) for module in modules]
        self._own = [[parameters[name] for name in names] for parameters in own]
        self._values = _flat([[p.detach() for p in parameters] for parameters in self._own])
        self._gradient = torch.empty_like(self._values)
        self._state = {key: self._stacked(key) for key in self._keys()}
        self._read = self._read_options()
        self._options = self._columns()

    def parameters(self) -> dict[str, Tensor]:
        """By name: models x shape, in the memory of the matrix."""
        found = self._divided(self._values)
        return {name: one.detach().requires_grad_() for name, one in zip(self.names, found, strict=True)}

    def step(self, gradients: Sequence[Tensor]) -> None:
        if not self.names:
            return
        self._heed_options()
        # The same memory at each step: to get some afresh takes longer than to compute in it.
        torch.cat([one.flatten(1) for one in gradients], 1, out=self._gradient)
        update = _sgd if isinstance(self._optimizers[0], torch.optim.SGD) else _adam
        update(self._values, self._gradient, self._state, self._options)

    def keep(self, ids: list[int]) -> None:
        self._optimizers = [self._optimizers[i] for i in ids]
        self._settings, self._own = [self._settings[i] for i in ids], [self._own[i] for i in ids]
        self._values, self._state = self._values[ids], {key: value[ids] for key, value in self._state.items()}
        self._gradient = torch.empty_like(self._values)
        self._read = [self._read[i] for i in ids]
        self._options = self._columns()

    @torch.no_grad()
    def write_back(self) -> None:
        for place, own in enumerate(self._own):
            for parameter, value in zip(own, self._divided(self._values), strict=True):
                parameter.copy_(value[place])
        for key, state in self._state.items():
            divided = [state.squeeze(1)] * len(self.names) if key == "step" else self._divided(state)
            for place, (own, optimizer) in enumerate(zip(self._own, self._optimizers, strict=True)):
                if key == "momentum_buffer" and not self._settings[place]["momentum"]:
                    continue  # torch makes none without momentum
                for parameter, value in zip(own, divided, strict=True):
                    optimizer.state[parameter][key] = value[place].clone()

    def _divided(self, matrix: Tensor) -> list[Tensor]:
        """Of each parameter its part of a matrix, in its shape."""
        parts = matrix.split_with_sizes([p.numel() for p in self._own[0]], 1)
        return [part.view(-1, *p.shape) for part, p in zip(parts, self._own[0], strict=True)]

    def _keys(self) -> list[str]:
        if not isinstance(self._optimizers[0], torch.optim.SGD):
            return ["step", "exp_avg", "exp_avg_sq"]
        return ["momentum_buffer"] if any(settings["momentum"] for settings in self._settings) else []

    def _stacked(self, key: str) -> Tensor:
        """A part of the optimizers' states; zeros where an optimizer has taken no step."""
        found: list[list[Tensor]] = []
        for own, optimizer in zip(self._own, self._optimizers, strict=True):
            states = [optimizer.state.get(parameter, {}).get(key) for parameter in own]
            if key == "step":  # the same for all parameters of a group
                steps = {0.0 if value is None else float(value) for value in states}
                found.append([torch.full((1,), max(steps, default=0.0), device=self._values.device)])
            else:
                pairs = zip(own, states, strict=True)
                found.append([torch.zeros_like(p) if value is None else value for p, value in pairs])
        return _flat(found)

    def _heed_options(self) -> None:
        """Takes the options that have changed since the last step."""
        read = self._read_options()
        if read == self._read:
            return
        if any(options["momentum"] for options in read):
            # as in torch, an optimizer that had no momentum before begins with none
            buffer = self._state.setdefault("momentum_buffer", torch.zeros_like(self._values))
            buffer[[place for place, options in enumerate(self._read) if not options["momentum"]]] = 0
        self._read, self._options = read, self._columns()

    def _read_options(self) -> list[dict[str, Any]]:
        return [{key: settings.get(key) for key in _OPTIONS} for settings in self._settings]

    def _columns(self) -> dict[str, Any]:
        """The options of all models, each in a column with one entry a model."""
        pairs = [dict(zip(("beta1", "beta2"), settings.get("betas", ()), strict=False)) for settings in self._settings]
        flat = [settings | pair for settings, pair in zip(self._settings, pairs, strict=True)]
        options: dict[str, Any] = {
            key: torch.tensor([[float(settings[key])] for settings in flat], device=self._values.device)
            for key in ("lr", "weight_decay", "momentum", "nesterov", "beta1", "beta2", "eps")
            if key in flat[0]
        }
        options["decays"] = any(settings["weight_decay"] for settings in flat)
        options["all_nesterov"] = all(settings.get("nesterov") for settings in flat)
        options["decoupled"] = isinstance(self._optimizers[0], torch.optim.AdamW)
        return options


def _flat(values: Sequence[Sequence[Tensor]]) -> Tensor:
    """Models x numbers, from the tensors of each model."""
    return torch.stack(
        [torch.cat([one.detach().flatten() for one in own]) if own else torch.empty(0) for own in values]
    )


def _sgd(values: Tensor, gradient: Tensor, state: dict[str, Tensor], options: dict[str, Any]) -> None:
    """As `torch.optim.SGD`, in the memory of the gradient. A first step with a buffer of zeros is one without."""
    if options["decays"]:
        gradient.addcmul_(values, options["weight_decay"])
    if state:
        buffer = state["momentum_buffer"].mul_(options["momentum"]).add_(gradient)
        gradient.addcmul_(buffer, options["momentum"])
        if not options["all_nesterov"]:
            gradient = torch.where(options["nesterov"] > 0, gradient, buffer)
    values.addcmul_(gradient, options["lr"], value=-1)


def _adam(values: Tensor, gradient: Tensor, state: dict[str, Tensor], options: dict[str, Any]) -> None:
    """As `torch.optim.Adam`, or AdamW, in the memory of the gradient."""
    first, second, decay = options["beta1"], options["beta2"], options["weight_decay"]
    if options["decoupled"]:
        values.mul_(1 - options["lr"] * decay)
    elif options["decays"]:
        gradient.addcmul_(values, decay)
    steps = state["step"].add_(1)
    state["exp_avg"].lerp_(gradient, (1 - first).expand_as(gradient))
    state["exp_avg_sq"].mul_(second).addcmul_(gradient.mul_(gradient), 1 - second)
    root = torch.sqrt(state["exp_avg_sq"], out=gradient).div_((1 - second**steps).sqrt()).add_(options["eps"])
    change = torch.div(state["exp_avg"], root, out=gradient)
    values.addcmul_(change, -options["lr"] / (1 - first**steps))


def check(modules: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Raises ValueError as `Stacked` does."""
    if len(modules) != len(optimizers) or not modules:
        raise ValueError(f"{len(modules)} modules and {len(optimizers)} optimizers: give at least one, and as many")
    shapes = [{name: tuple(p.shape) for name, p in module.named_parameters()} for module in modules]
    for number, found in enumerate(shapes):
        for name in [*shapes[0], *found]:
            if found.get(name) != shapes[0].get(name):
                raise ValueError(
                    f"{name} has the shape {found.get(name)} in model {number}, and {shapes[0].get(name)} in model 0: "
                    "models that train as one have one shape"
                )
        if names := [name for name, _ in modules[number].named_buffers()]:
            raise ValueError(f"model {number} has the buffer {names[0]}: models with buffers cannot train as one")
    kinds = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
    for number, optimizer in enumerate(optimizers):
        if type(optimizer) is not type(optimizers[0]) or type(optimizer) not in kinds:
            raise ValueError(
                f"the optimizer of model {number} is {type(optimizer).__name__}: give SGD, Adam or AdamW, and the "
                "same to all"
            )
        if len(optimizer.param_groups) != len(optimizers[0].param_groups):
            raise ValueError(
                f"the optimizer of model {number} has other groups than that of model 0: give all the same"
            )
        for group in optimizer.param_groups:
            for option in ("amsgrad", "maximize", "dampening"):
                if group.get(option):
                    raise ValueError(f"the optimizer of model {number} has {option}, which is not known here")
