"""Several models of one shape that train as one: each layer computes all of them in one call.

A small network leaves most of a processor or GPU idle, because each call costs more time than its arithmetic. Eight
models in a batched call take hardly longer than one. The models may differ in all that is a number: learning rate,
weight decay, momentum, dropout, initial weights, data.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from tuner.training.stacked_optimizers import OptimizerGroup, check


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
        check(self._modules, self._optimizers)
        names = {id(parameter): name for name, parameter in modules[0].named_parameters()}
        self._groups = [
            OptimizerGroup(
                [names[id(p)] for p in group["params"] if p.requires_grad], number, self._modules, self._optimizers
            )
            for number, group in enumerate(optimizers[0].param_groups)
        ]
        trained = {name for group in self._groups for name in group.names}
        self._fixed = {
            name: torch.stack([dict(module.named_parameters())[name].detach() for module in modules])
            for name in names.values()
            if name not in trained
        }
        self._find_parameters()

    def _find_parameters(self) -> None:
        self._trained = {name: value for group in self._groups for name, value in group.parameters().items()}
        self._parameters = self._fixed | self._trained

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
        gradients = dict(zip(self._trained, torch.autograd.grad(losses.sum(), [*self._trained.values()]), strict=True))
        with torch.no_grad():
            for group in self._groups:
                group.step([gradients[name] for name in group.names])

    def keep(self, places: Sequence[int]) -> None:
        """Drops all models but some, such as those that have not been stopped.

        Args:
            places: Where those stand that stay; they stand in this order afterwards.
        """
        ids = list(places)
        self._modules, self._optimizers = [self._modules[i] for i in ids], [self._optimizers[i] for i in ids]
        self._fixed = {name: value[ids] for name, value in self._fixed.items()}
        for group in self._groups:
            group.keep(ids)
        self._find_parameters()

    def write_back(self) -> None:
        """Copies weights and optimizer states into the modules and optimizers that it was made of."""
        for group in self._groups:
            group.write_back()


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
    # With the weight as the first factor torch computes its gradient, of few outputs, eight times as fast.
    return torch.baddbmm(bias[:, :, None], weight, x.mT).mT


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
    if not any(rates):
        return x
    # Drawn into contiguous memory, as the numbers fill a tensor in the order of its memory, and `linear` gives another
    # order. Then copied into that one, as products of mixed orders take six times as long.
    drawn = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    for own, rate, generator in zip(drawn, rates, generators, strict=True):
        if rate:
            own.bernoulli_(1 - rate, generator=generator)
        else:
            own.fill_(1.0)
    shares = torch.tensor([1 - rate for rate in rates], dtype=x.dtype, device=x.device)
    kept = drawn if x.is_contiguous() else torch.empty_like(x).copy_(drawn)
    return x * kept.div_(shares.view(-1, *[1] * (x.ndim - 1)))


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
    # With the classes in the middle, as torch takes them, its kernel is five times as fast for few classes.
    return F.cross_entropy(logits.mT, labels.expand(logits.shape[:2]), reduction="none").mean(1)
