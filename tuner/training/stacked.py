"""Several models of one shape that train as one: each layer computes all of them in one call.

A small network leaves most of a processor or GPU idle, because each call costs more time than its arithmetic. Eight
models in a batched call take hardly longer than one. The models may differ in all that is a number: learning rate,
weight decay, momentum, dropout, initial weights, data.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F


class Stacked:
    """Modules of one shape, and the optimizer of each, as one model.

    Weights and optimizer states are copied when it is made. `step` follows the maths of `torch.optim`, so that each
    model gets what it would get alone, up to rounding. `write_back` copies all of it into the modules and optimizers
    again: to save a checkpoint, or to score a model alone.

    Args:
        modules: Models of the same class and shape, on one device, without buffers.
        optimizers: One for each, of the same class and with the same groups: `torch.optim.SGD`, `Adam` or `AdamW`.
            Learning rate, momentum, weight decay and betas may differ, and are read at each `step`.

    Raises:
        ValueError: If the modules differ in shape, or an optimizer has an option that is not known here.

    Example:
        >>> import torch
        >>> from tuner.training.stacked import Stacked, cross_entropy, linear
        >>> models = [torch.nn.Linear(4, 3) for _ in range(2)]
        >>> optimizers = [torch.optim.SGD(m.parameters(), lr=lr) for m, lr in zip(models, (0.1, 0.2))]
        >>> stacked = Stacked(models, optimizers)
        >>> x, y = torch.randn(2, 8, 4), torch.zeros(2, 8, dtype=torch.int64)  # of each model, its own batch
        >>> logits = linear(x, stacked["weight"], stacked["bias"])
        >>> stacked.step(cross_entropy(logits, y))
        >>> stacked.write_back()
        >>> bool(torch.allclose(models[0](x[0]), linear(x, stacked["weight"], stacked["bias"])[0], atol=1e-6))
        True
    """

    def __init__(self, modules: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._modules, self._optimizers = list(modules), list(optimizers)
        _check(self._modules, self._optimizers)
        self._own = [dict(module.named_parameters()) for module in modules]
        self._parameters = {
            name: torch.stack([own[name].detach() for own in self._own]).requires_grad_(parameter.requires_grad)
            for name, parameter in self._own[0].items()
        }
        self._states = {name: self._stacked_state(name) for name in self._parameters}
        self._find_groups()

    def _find_groups(self) -> None:
        """Of each parameter the group in each model's optimizer, and what its options came to."""
        own = [*zip(self._own, self._optimizers, strict=True)]
        self._groups = {name: [_group_of(one, p[name]) for p, one in own] for name in self._parameters}
        self._known: dict[str, tuple[list[Any], dict[str, Any]]] = {}

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, name: str) -> Tensor:
        """A parameter of all models, by its name in a module: models x its shape."""
        return self._parameters[name]

    def __call__(self, x: Tensor) -> Tensor:
        """All models, each on its own batch, by `torch.func.vmap`: for modules that draw no random numbers.

        Args:
            x: Models x batch x the shape of an example.

        Returns:
            Models x batch x the shape of an output.
        """
        module = self._modules[0]
        found: Tensor = torch.vmap(lambda own, batch: functional_call(module, own, (batch,)))(self._parameters, x)
        return found

    def step(self, losses: Tensor) -> None:
        """Takes one step of each model's optimizer against its own loss.

        Args:
            losses: One for each model. Their sum is differentiated; no loss depends on another model.
        """
        trained = {name: p for name, p in self._parameters.items() if p.requires_grad}
        gradients = torch.autograd.grad(losses.sum(), list(trained.values()))
        update = _sgd if isinstance(self._optimizers[0], torch.optim.SGD) else _adam
        with torch.no_grad():
            for (name, parameter), gradient in zip(trained.items(), gradients, strict=True):
                update(parameter, gradient, self._states[name], self._options(name))

    def keep(self, places: Sequence[int]) -> None:
        """Drops all models but some, such as those that have not been stopped.

        Args:
            places: Where those stand that stay; they stand in this order afterwards.
        """
        ids = list(places)
        self._modules, self._optimizers = [self._modules[i] for i in ids], [self._optimizers[i] for i in ids]
        self._own = [self._own[i] for i in ids]
        for name, parameter in self._parameters.items():
            self._parameters[name] = parameter.detach()[ids].requires_grad_(parameter.requires_grad)
            self._states[name] = {key: value[ids] for key, value in self._states[name].items()}
        self._find_groups()

    @torch.no_grad()
    def write_back(self) -> None:
        """Copies weights and optimizer states into the modules and optimizers that it was made of."""
        for name, parameter in self._parameters.items():
            for own, value in zip(self._own, parameter, strict=True):
                own[name].copy_(value)
            for key, values in self._states[name].items():
                for own, optimizer, value in zip(self._own, self._optimizers, values, strict=True):
                    optimizer.state[own[name]][key] = value.clone()

    def _stacked_state(self, name: str) -> dict[str, Tensor]:
        """Of a parameter's optimizers; zeros where an optimizer has taken no step."""
        parameter = self._own[0][name].detach()
        keys = ["momentum_buffer"]
        if not isinstance(self._optimizers[0], torch.optim.SGD):
            keys = ["step", "exp_avg", "exp_avg_sq"]
        elif not any(group["momentum"] for optimizer in self._optimizers for group in optimizer.param_groups):
            keys = []
        found: dict[str, list[Tensor]] = {key: [] for key in keys}
        for own, optimizer in zip(self._own, self._optimizers, strict=True):
            state = optimizer.state.get(own[name], {})
            for key in keys:
                empty = torch.zeros(()) if key == "step" else torch.zeros_like(parameter)
                value = state.get(key)
                found[key].append((empty if value is None else value).to(parameter.device))
        return {key: torch.stack(values) for key, values in found.items()}

    def _options(self, name: str) -> dict[str, Any]:
        """The options of a parameter's group, of all models; each number can be multiplied with the parameter."""
        groups = self._groups[name]
        values = [tuple(group[key] for key in _OPTIONS if key in group) for group in groups]
        known = self._known.get(name)
        if known is None or known[0] != values:
            known = self._known[name] = (values, self._tensors(name, groups))
        return known[1]

    def _tensors(self, name: str, groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
        parameter = self._parameters[name]
        shape = (-1, *[1] * (parameter.ndim - 1))
        flat = [group | dict(zip(("beta1", "beta2"), group.get("betas", ()), strict=False)) for group in groups]
        found: dict[str, Any] = {
            key: torch.tensor([float(group[key]) for group in flat], device=parameter.device).view(shape)
            for key in ("lr", "weight_decay", "momentum", "nesterov", "beta1", "beta2", "eps")
            if key in flat[0]
        }
        found["decays"] = any(group["weight_decay"] for group in flat)
        found["nesterov"] = None if all(group.get("nesterov") for group in flat) else found.get("nesterov")
        found["decoupled"] = isinstance(self._optimizers[0], torch.optim.AdamW)
        return found


_OPTIONS = ("lr", "weight_decay", "momentum", "nesterov", "betas", "eps")


def _sgd(parameter: Tensor, gradient: Tensor, state: dict[str, Tensor], options: dict[str, Any]) -> None:
    """As `torch.optim.SGD`; a first step with a buffer of zeros is that of an empty one."""
    if options["decays"]:
        gradient = torch.addcmul(gradient, parameter, options["weight_decay"])
    if state:
        buffer = state["momentum_buffer"]
        buffer.mul_(options["momentum"]).add_(gradient)
        ahead = torch.addcmul(gradient, buffer, options["momentum"])
        mixed = options["nesterov"] is not None
        gradient = torch.where(options["nesterov"] > 0, ahead, buffer) if mixed else ahead
    parameter.addcmul_(gradient, options["lr"], value=-1)


def _adam(parameter: Tensor, gradient: Tensor, state: dict[str, Tensor], options: dict[str, Any]) -> None:
    """As `torch.optim.Adam`, or AdamW."""
    first, second, decay = options["beta1"], options["beta2"], options["weight_decay"]
    if options["decoupled"]:
        parameter.mul_(1 - options["lr"] * decay)
    elif options["decays"]:
        gradient = torch.addcmul(gradient, parameter, decay)
    state["step"] += 1
    steps = state["step"].view_as(first)
    state["exp_avg"].lerp_(gradient, (1 - first).expand_as(gradient))
    state["exp_avg_sq"].mul_(second).addcmul_(gradient * gradient, 1 - second)
    root = (state["exp_avg_sq"].sqrt() / (1 - second**steps).sqrt()).add_(options["eps"])
    parameter.addcmul_(state["exp_avg"] / root, -options["lr"] / (1 - first**steps))


def _group_of(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, Any]:
    return next(group for group in optimizer.param_groups if any(one is parameter for one in group["params"]))


def _check(modules: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> None:
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
        for group in optimizer.param_groups:
            for option in ("amsgrad", "maximize", "dampening"):
                if group.get(option):
                    raise ValueError(f"the optimizer of model {number} has {option}, which is not known here")


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer of all models, as `torch.nn.functional.linear`.

    Args:
        x: Models x batch x features.
        weight: Models x outputs x features.
        bias: Models x outputs.

    Returns:
        Models x batch x outputs.

    Example:
        >>> import torch
        >>> from tuner.training.stacked import linear
        >>> linear(torch.ones(2, 5, 4), torch.ones(2, 3, 4), torch.zeros(2, 3)).shape
        torch.Size([2, 5, 3])
    """
    return torch.baddbmm(bias[:, None], x, weight.mT)


def dropout(x: Tensor, rates: Sequence[float], generators: Sequence[torch.Generator]) -> Tensor:
    """Dropout of all models, each with its rate, and with random numbers of its own.

    On a CPU the numbers are those that `torch.nn.Dropout` draws, if each generator is in the state of torch's own.

    Args:
        x: Models x anything.
        rates: Of each model, the probability that a value becomes 0, from 0 up to 1.
        generators: One for each model, on the device of `x`.

    Returns:
        Of the shape of `x`; what is kept is divided by 1 - rate.

    Example:
        >>> import torch
        >>> from tuner.training.stacked import dropout
        >>> generators = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
        >>> dropout(torch.ones(2, 1000), [0.0, 0.5], generators).mean(1).round()
        tensor([1., 1.])
    """
    kept = torch.ones_like(x)
    for own, rate, generator in zip(kept, rates, generators, strict=True):
        if rate:
            own.bernoulli_(1 - rate, generator=generator).div_(1 - rate)
    return x * kept


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of each model.

    Args:
        logits: Models x batch x classes.
        labels: Models x batch, or batch, if all models have the same.

    Returns:
        In nats, one for each model.

    Example:
        >>> import torch
        >>> from tuner.training.stacked import cross_entropy
        >>> cross_entropy(torch.zeros(2, 5, 10), torch.zeros(5, dtype=torch.int64))
        tensor([2.3026, 2.3026])
    """
    labels = labels.expand(logits.shape[:2])
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape).mean(1)
