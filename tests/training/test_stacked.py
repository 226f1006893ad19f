"""Models of one shape that train as one: each gets what it would get alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuner.training.stacked import Stacked, cross_entropy, dropout, linear

COUNT, BATCH = 3, 20


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two processes of two threads each, on two cores, are a hundred times slower for such small matrices."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def network(seed: int, width: int = 8) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, width), nn.Tanh(), nn.Linear(width, 4))


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(COUNT, BATCH, 5, generator=generator)
    return x, torch.randint(0, 4, (COUNT, BATCH), generator=generator)


def outputs(stacked: Stacked, x: Tensor) -> Tensor:
    hidden = linear(x, stacked["0.weight"], stacked["0.bias"]).tanh()
    return linear(hidden, stacked["2.weight"], stacked["2.bias"])


def alone(models: list[nn.Sequential], optimizers: list[torch.optim.Optimizer], steps: range) -> None:
    for step in steps:
        x, y = batch(step)
        for number, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            F.cross_entropy(model(x[number]), y[number]).backward()
            optimizer.step()


def together(stacked: Stacked, steps: range) -> None:
    for step in steps:
        x, y = batch(step)
        stacked.step(cross_entropy(outputs(stacked, x), y))


Make = Callable[[nn.Module, int], torch.optim.Optimizer]
KINDS: dict[str, Make] = {
    "sgd": lambda m, i: torch.optim.SGD(m.parameters(), lr=0.1 * (i + 1), weight_decay=0.01 * i),
    "momentum": lambda m, i: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.3 * i, weight_decay=0.01),
    "nesterov": lambda m, i: torch.optim.SGD(m.parameters(), lr=0.05 * (i + 1), momentum=0.9, nesterov=True),
    "some nesterov": lambda m, i: torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, nesterov=i == 1),
    "adam": lambda m, i: torch.optim.Adam(m.parameters(), lr=0.01 * (i + 1), weight_decay=0.1 * i),
    "adamw": lambda m, i: torch.optim.AdamW(m.parameters(), lr=0.01, betas=(0.8 + 0.05 * i, 0.99), weight_decay=0.1),
    "groups": lambda m, i: torch.optim.SGD(
        [
            {"params": [p for p in m.parameters() if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in m.parameters() if p.ndim == 1], "lr": 0.02 * (i + 1)},
        ],
        lr=0.1,
    ),
}


def models(kind: str) -> tuple[list[nn.Sequential], list[torch.optim.Optimizer]]:
    made = [network(seed) for seed in range(COUNT)]
    return made, [KINDS[kind](model, number) for number, model in enumerate(made)]


def assert_same(left: list[nn.Sequential], right: list[nn.Sequential]) -> None:
    for one, other in zip(left, right, strict=True):
        for a, b in zip(one.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_each_model_gets_what_it_would_get_alone(kind: str) -> None:
    expected, single = models(kind)
    alone(expected, single, range(10))
    found, optimizers = models(kind)
    stacked = Stacked(found, optimizers)
    together(stacked, range(10))
    stacked.write_back()
    assert_same(found, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", ["alone", "together"])
def test_a_training_continues_in_the_other_way(kind: str, first: str) -> None:
    expected, single = models(kind)
    alone(expected, single, range(8))
    found, optimizers = models(kind)
    if first == "alone":
        alone(found, optimizers, range(4))
        stacked = Stacked(found, optimizers)
        together(stacked, range(4, 8))
        stacked.write_back()
    else:
        stacked = Stacked(found, optimizers)
        together(stacked, range(4))
        stacked.write_back()
        again = [network(seed) for seed in range(COUNT)]  # as from a checkpoint
        others = [KINDS[kind](model, number) for number, model in enumerate(again)]
        for a, b, x, y in zip(again, found, others, optimizers, strict=True):
            a.load_state_dict(b.state_dict())
            x.load_state_dict(y.state_dict())
        alone(again, others, range(4, 8))
        found = again
    assert_same(found, expected)


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_models_leave_and_the_others_continue(kind: str) -> None:
    expected, single = models(kind)
    alone(expected, single, range(8))
    found, optimizers = models(kind)
    stacked = Stacked(found, optimizers)
    together(stacked, range(4))
    stacked.keep([2, 0])
    assert len(stacked) == 2
    for step in range(4, 8):
        x, y = batch(step)
        stacked.step(cross_entropy(outputs(stacked, x[[2, 0]]), y[[2, 0]]))
    stacked.write_back()
    assert_same([found[2], found[0]], [expected[2], expected[0]])


def test_a_changed_learning_rate_counts_from_the_next_step() -> None:
    expected, single = models("momentum")
    found, optimizers = models("momentum")
    stacked = Stacked(found, optimizers)
    for steps, lr in ((range(3), 0.1), (range(3, 6), 0.02)):
        for optimizer in single + optimizers:
            optimizer.param_groups[0]["lr"] = lr
        alone(expected, single, steps)
        together(stacked, steps)
    stacked.write_back()
    assert_same(found, expected)


@pytest.mark.parametrize("before", [[0.0, 0.0, 0.0], [0.0, 0.5, 0.9]])
def test_momentum_that_is_switched_on_begins_without_a_past(before: list[float]) -> None:
    def parts() -> tuple[list[nn.Sequential], list[torch.optim.Optimizer]]:
        made = [network(seed) for seed in range(COUNT)]
        return made, [optimizer(model, momentum=momentum) for model, momentum in zip(made, before, strict=True)]

    (expected, single), (found, optimizers) = parts(), parts()
    stacked = Stacked(found, optimizers)
    for steps, momentum in ((range(3), None), (range(3, 6), 0.9)):
        for one in single + optimizers:
            one.param_groups[0]["momentum"] = momentum or one.param_groups[0]["momentum"]
        alone(expected, single, steps)
        together(stacked, steps)
    stacked.write_back()
    assert_same(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_of_an_optimizer_has_the_form_that_torch_gives_it(kind: str) -> None:
    def form(one: torch.optim.Optimizer) -> dict[str, Any]:
        state = one.state_dict()
        kept = {
            number: {key: (value.shape, value.dtype) for key, value in own.items() if value is not None}
            for number, own in state["state"].items()
        }
        return {"state": {number: own for number, own in kept.items() if own}, "groups": state["param_groups"]}

    expected, single = models(kind)
    alone(expected, single, range(2))
    found, optimizers = models(kind)
    stacked = Stacked(found, optimizers)
    together(stacked, range(2))
    stacked.write_back()
    assert [form(one) for one in optimizers] == [form(one) for one in single]


def test_a_frozen_parameter_stays() -> None:
    found = [network(seed) for seed in range(COUNT)]
    for model in found:
        model[0].weight.requires_grad_(False)
    before = [model[0].weight.clone() for model in found]
    stacked = Stacked(found, [torch.optim.SGD(model.parameters(), lr=0.1) for model in found])
    together(stacked, range(2))
    stacked.write_back()
    assert all(torch.equal(model[0].weight, old) for model, old in zip(found, before, strict=True))


def test_any_module_can_be_called_as_it_is() -> None:
    found, optimizers = models("sgd")
    x, _ = batch(0)
    torch.testing.assert_close(
        Stacked(found, optimizers)(x), torch.stack([m(b) for m, b in zip(found, x, strict=True)])
    )


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_dropout_draws_what_torch_draws(rate: float) -> None:
    x = torch.randn(COUNT, BATCH, 64)
    expected = []
    for seed in range(COUNT):
        torch.manual_seed(seed)
        expected.append(F.dropout(x[seed], rate))
    generators = [torch.Generator().manual_seed(seed) for seed in range(COUNT)]
    assert torch.equal(dropout(x, [rate] * COUNT, generators), torch.stack(expected))


def test_dropout_draws_the_same_whatever_the_order_in_memory() -> None:
    x = torch.randn(COUNT, BATCH, 64)
    apart = x.mT.contiguous().mT
    assert not apart.is_contiguous()
    drawn = [
        dropout(values, [0.1, 0.0, 0.5], [torch.Generator().manual_seed(seed) for seed in range(COUNT)])
        for values in (x, apart)
    ]
    assert torch.equal(*drawn)


def optimizer(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, **options)


def test_what_cannot_train_as_one_is_named() -> None:
    a, b, wide = network(0), network(1), network(2, width=9)
    normed = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    cases: list[tuple[list[nn.Module], list[torch.optim.Optimizer], str]] = [
        (
            [a, wide],
            [optimizer(a), optimizer(wide)],
            r"0.weight has the shape \(9, 5\) in model 1, and \(8, 5\) in mod",
        ),
        ([a], [], "1 modules and 0 optimizers"),
        ([normed], [optimizer(normed)], "model 0 has the buffer 1.running_mean"),
        ([a, b], [optimizer(a), torch.optim.Adam(b.parameters())], "the optimizer of model 1 is Adam"),
        ([a], [torch.optim.RMSprop(a.parameters())], "the optimizer of model 0 is RMSprop"),
        ([a], [optimizer(a, momentum=0.9, dampening=0.5)], "the optimizer of model 0 has dampening"),
    ]
    for modules, optimizers, message in cases:
        with pytest.raises(ValueError, match=message):
            Stacked(modules, optimizers)
