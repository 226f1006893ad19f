"""Penalties, decay, clipping, the average of weights, mixed batches."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tuner.training import checkpointing
from tuner.training.regularization import Ema, clip_gradients, mix_batch, parameter_groups, penalty


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5), nn.LayerNorm((5,)))


def names(model: nn.Module, parameters: list[Any]) -> set[str]:
    ids = {id(p) for p in parameters}
    return {name for name, p in model.named_parameters() if id(p) in ids}


# ----------------------------------------------------------------------------------------------- decay, penalty


def test_decay_is_on_weights_only() -> None:
    model = network()
    decayed, others = parameter_groups(model, 0.1)
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert names(model, decayed["params"]) == {"0.weight", "3.weight"}
    assert names(model, others["params"]) == {"0.bias", "1.weight", "1.bias", "3.bias", "4.weight", "4.bias"}


def test_norms_and_biases_of_two_dimensions_and_tied_and_frozen_weights() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.ones(2, 2))

    model = nn.Sequential(nn.LayerNorm((2, 2)), nn.RMSNorm((2, 2)), Table(), nn.Linear(2, 2), nn.Linear(2, 2))
    model[4].weight = model[3].weight
    model.append(nn.Linear(2, 2)).get_submodule("5").requires_grad_(False)
    decayed, others = parameter_groups(model, 0.1)
    assert [id(p) for p in decayed["params"]] == [id(model[3].weight)]
    assert len(others["params"]) == 2 + 1 + 1 + 2
    torch.optim.SGD([decayed, others], 0.1)  # refuses a parameter that is in two groups


def test_decay_shrinks_the_weights_and_nothing_else() -> None:
    model = network()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.5), lr=0.1)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in model.named_parameters():
        factor = 0.95 if name in ("0.weight", "3.weight") else 1.0
        assert torch.allclose(p, factor * before[name])


def test_a_group_without_parameters_is_left_out() -> None:
    assert [group["weight_decay"] for group in parameter_groups(nn.Linear(2, 2, bias=False), 0.1)] == [0.1]
    assert [group["weight_decay"] for group in parameter_groups(nn.BatchNorm1d(2), 0.1)] == [0.0]


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.2), (0.3, 0.2)])
def test_the_penalty_and_its_gradient(l1: float, l2: float) -> None:
    model = network()
    total = penalty(model, l1, l2)
    matrices = [model[0].weight, model[3].weight]
    expected = sum(l1 * w.abs().sum().item() + l2 / 2 * (w**2).sum().item() for w in matrices)
    assert total.item() == pytest.approx(expected)
    if l1 or l2:
        total.backward()
        for w in matrices:
            assert torch.allclose(w.grad, l1 * w.sign() + l2 * w)
    assert model[0].bias.grad is None
    assert model[1].weight.grad is None


@pytest.mark.parametrize("model", [nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(2, 2).requires_grad_(False)])
def test_a_penalty_without_weights_is_refused(model: nn.Module) -> None:
    assert penalty(model).item() == 0
    with pytest.raises(ValueError, match=f"l1: 0.1, l2: 0, but {type(model).__name__} has no weights"):
        penalty(model, l1=0.1)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_impossible_factors_are_named(value: float) -> None:
    with pytest.raises(ValueError, match="l1: "):
        penalty(network(), l1=value)
    with pytest.raises(ValueError, match="l2: "):
        penalty(network(), l2=value)
    with pytest.raises(ValueError, match="weight_decay: "):
        parameter_groups(network(), value)


# ----------------------------------------------------------------------------------------------------- clipping


def with_gradients() -> nn.Sequential:
    model = network()
    model(torch.randn(6, 3, 4, 4)).square().sum().backward()
    return model


def norm(model: nn.Module) -> float:
    return float(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm())


def test_clipping_returns_the_norm_before_and_keeps_the_direction() -> None:
    model = with_gradients()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    before = norm(model)
    assert float(clip_gradients(model, None)) == pytest.approx(before)
    assert norm(model) == before
    assert float(clip_gradients(model, before / 4)) == pytest.approx(before)
    assert norm(model) == pytest.approx(before / 4, rel=1e-4)
    for p, old in zip(model.parameters(), gradients, strict=True):
        assert p.grad is not None
        assert torch.allclose(p.grad, old / 4, rtol=1e-4)


def test_small_gradients_and_none_stay() -> None:
    model = with_gradients()
    before = norm(model)
    clip_gradients(model, 2 * before)
    assert norm(model) == before
    assert float(clip_gradients(nn.Linear(2, 2), 1.0)) == 0


@pytest.mark.parametrize("max_norm", [0.0, -1.0, float("nan")])
def test_an_impossible_norm_is_named(max_norm: float) -> None:
    with pytest.raises(ValueError, match="max_norm: "):
        clip_gradients(network(), max_norm)


# ------------------------------------------------------------------------------------------------------- average


def step(model: nn.Module, ema: Ema) -> None:
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p))
    model(torch.randn(6, 3, 4, 4))  # moves the buffers of batch norm
    ema.update()


def test_the_average_is_the_formula_for_parameters_and_buffers() -> None:
    model = network()
    ema = Ema(model, 0.9)
    expected: dict[str, torch.Tensor] = {}
    for k in range(5):
        step(model, ema)
        for name, value in model.state_dict().items():
            new = value.clone() if k == 0 or not value.is_floating_point() else 0.9 * expected[name] + 0.1 * value
            expected[name] = new
    own = copy.deepcopy(model.state_dict())
    with ema.applied() as averaged:
        assert averaged is model
        for name, value in model.state_dict().items():
            assert torch.allclose(value, expected[name], atol=1e-6), name
        assert not torch.equal(model.state_dict()["0.weight"], own["0.weight"])
    assert int(expected["1.num_batches_tracked"]) == 5
    for name, value in model.state_dict().items():
        assert torch.equal(value, own[name])


def test_the_models_own_weights_come_back_after_an_error() -> None:
    model = network()
    ema = Ema(model, 0.9)
    step(model, ema)
    step(model, ema)
    own = copy.deepcopy(model.state_dict())
    average = copy.deepcopy(ema.state_dict())
    with pytest.raises(ZeroDivisionError), ema.applied():
        raise ZeroDivisionError
    assert all(torch.equal(value, own[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value, average[name]) for name, value in ema.state_dict().items())


def test_the_average_continues_to_the_bit_from_a_checkpoint(tmp_path: Path) -> None:
    def parts(model: nn.Module) -> dict[str, Any]:
        ema = Ema(model, 0.9)
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1), "schedule": ema}

    whole = parts(network())
    for _ in range(2):
        step(whole["model"], whole["schedule"])
    checkpointing.save(tmp_path, epoch=2, metrics={}, **whole)
    for _ in range(3):
        step(whole["model"], whole["schedule"])
    resumed = parts(network())
    checkpointing.restore(tmp_path, **resumed)
    for _ in range(3):
        step(resumed["model"], resumed["schedule"])
    expected, got = whole["schedule"].state_dict(), resumed["schedule"].state_dict()
    assert int(got["n_averaged"]) == 5
    assert all(torch.equal(got[name], value) for name, value in expected.items())


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_an_impossible_decay_is_named(decay: float) -> None:
    with pytest.raises(ValueError, match="decay: "):
        Ema(network(), decay)


# --------------------------------------------------------------------------------------------------------- mixing


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def test_none_changes_nothing() -> None:
    x, y = torch.randn(4, 3), torch.arange(4)
    mixed = mix_batch(x, y, "none", 1.0, generator())
    assert mixed.x is x
    assert (mixed.first is y, mixed.second is y, mixed.weight) == (True, True, 1.0)


def test_mixup_averages_with_the_weight_that_it_returns() -> None:
    x, y = torch.randn(8, 3, 5, 5), torch.arange(8)
    before = x.clone()
    mixed = mix_batch(x, y, "mixup", 0.8, generator())
    assert torch.equal(x, before)
    assert sorted(mixed.second.tolist()) == list(range(8))
    expected = mixed.weight * x + (1 - mixed.weight) * x[mixed.second]
    assert torch.allclose(mixed.x, expected, atol=1e-6)
    assert mixed.first is y


def test_cutmix_takes_one_rectangle_whose_area_is_the_weight() -> None:
    draw = generator()
    y = torch.arange(6)
    x = y.float().view(6, 1, 1, 1).expand(6, 3, 10, 14).clone()
    weights = set()
    for _ in range(50):
        mixed = mix_batch(x, y, "cutmix", 1.0, draw)
        weights.add(mixed.weight)
        for k in range(6):
            foreign = mixed.x[k] != k
            other = int(mixed.second[k])
            if other == k:
                assert not foreign.any()
                continue
            assert (mixed.x[k][foreign] == other).all()
            assert 1 - foreign.double().mean().item() == pytest.approx(mixed.weight)
            rows, columns = foreign.any(0).any(1).sum(), foreign.any(0).any(0).sum()
            assert int(rows * columns) * 3 == int(foreign.sum())  # a full rectangle, in all channels
    assert len(weights) > 25


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_the_weights_have_the_beta_distribution(alpha: float) -> None:
    draw = generator()
    x, y = torch.zeros(2, 1), torch.zeros(2)
    weights = torch.tensor([mix_batch(x, y, "mixup", alpha, draw).weight for _ in range(4000)])
    assert float(weights.mean()) == pytest.approx(0.5, abs=0.03)
    assert float(weights.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)


def test_a_tiny_alpha_gives_the_ends_and_no_nan() -> None:
    draw = generator()
    x, y = torch.zeros(2, 1), torch.zeros(2)
    weights = {mix_batch(x, y, "mixup", 1e-4, draw).weight for _ in range(200)}
    assert all(0 <= w <= 1 for w in weights)
    assert min(weights) < 0.01
    assert max(weights) > 0.99


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_the_generator_decides_and_the_global_one_is_left_alone(kind: Any) -> None:
    x, y = torch.randn(8, 3, 5, 5), torch.arange(8)
    state = torch.get_rng_state()
    one, same = (mix_batch(x, y, kind, 1.0, generator()) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one.x, same.x)
    assert one.weight == same.weight
    draw = generator()
    mix_batch(x, y, kind, 1.0, draw)
    assert mix_batch(x, y, kind, 1.0, draw).weight != one.weight


@pytest.mark.parametrize(
    ("kind", "alpha", "shape", "message"),
    [
        ("cut", 1.0, (2, 3), "kind: 'cut'; allowed: none, mixup, cutmix"),
        ("mixup", 0.0, (2, 3), "alpha: 0.0"),
        ("mixup", float("nan"), (2, 3), "alpha: nan"),
        ("cutmix", 1.0, (2, 3), r"cutmix: x has shape \(2, 3\)"),
    ],
)
def test_bad_input_is_named(kind: Any, alpha: float, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mix_batch(torch.zeros(shape), torch.zeros(2), kind, alpha, generator())
