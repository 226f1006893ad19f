"""Frozen networks: what trains, what is saved, how fast each layer learns."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tuner.training import checkpointing
from tuner.training.transfer import (
    TrainableOnly,
    freeze,
    layerwise_groups,
    load_trainable_state,
    thaw,
    trainable_state,
)


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    parts = {
        "scale": nn.Identity(),
        "stem": nn.Linear(3, 4),
        "norm": nn.BatchNorm1d(4),
        "body": nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
        "head": nn.Linear(4, 2),
    }
    return nn.Sequential(OrderedDict(parts))


def training(model: nn.Module) -> set[str]:
    return {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad}


def train(model: nn.Module, steps: int, optimizer: torch.optim.Optimizer) -> None:
    for k in range(steps):
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(k))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


# -------------------------------------------------------------------------------------------------------- freeze


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("none", {"stem", "norm", "body", "head"}),
        ("stem", {"norm", "body", "head"}),
        ("all_but_head", {"head"}),
    ],
)
def test_what_trains_changes_and_nothing_else_does(kind: Any, left: set[str]) -> None:
    model = network()
    frozen = freeze(model, kind, head="head")
    assert training(model) == left
    assert {name.split(".")[0] for name in frozen} == {"stem", "norm", "body", "head"} - left
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    train(model, 3, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.5))
    changed = {name.split(".")[0] for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert changed == left
    thaw(model)
    assert training(model) == {"stem", "norm", "body", "head"}


def test_the_head_can_be_a_module_inside() -> None:
    model = network()
    freeze(model, "all_but_head", head="body.0")
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["body.0.weight", "body.0.bias"]


def test_a_frozen_part_stays_frozen() -> None:
    model = network()
    model.get_submodule("body").requires_grad_(False)
    assert set(freeze(model, "stem")) == {"stem.weight", "stem.bias", "body.0.weight", "body.0.bias"}


@pytest.mark.parametrize(
    ("model", "kind", "head"),
    [
        (nn.Sequential(nn.Linear(2, 2)), "stem", None),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "all_but_head", "1"),
        (nn.Linear(2, 2).requires_grad_(False), "none", None),
        (nn.ReLU(), "none", None),
    ],
)
def test_nothing_left_to_train_is_refused_and_freezes_nothing(model: nn.Module, kind: Any, head: str | None) -> None:
    before = [p.requires_grad for p in model.parameters()]
    with pytest.raises(ValueError, match="a frozen model with nothing left to train"):
        freeze(model, kind, head)
    assert [p.requires_grad for p in model.parameters()] == before


@pytest.mark.parametrize(
    ("kind", "head", "message"),
    [
        ("all", "head", "freeze: 'all'; allowed: none, stem, all_but_head"),
        ("all_but_head", None, "needs the name of its head; its children: scale, stem, norm, body, head"),
        ("all_but_head", "fc", "no module 'fc'; its children: scale, stem, norm, body, head"),
        ("all_but_head", "", "no module ''"),
    ],
)
def test_bad_input_is_named(kind: Any, head: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        freeze(network(), kind, head)


# --------------------------------------------------------------------------------------------------------- state


def test_a_checkpoint_has_no_frozen_weights_and_continues_to_the_bit(tmp_path: Path) -> None:
    def parts() -> dict[str, Any]:
        model = network()  # the same backbone each time, as if from a file
        freeze(model, "all_but_head", head="head")
        groups = layerwise_groups(model, 0.1, 0.5)
        return {"model": TrainableOnly(model), "optimizer": torch.optim.SGD(groups, momentum=0.9)}

    whole = parts()
    train(whole["model"], 3, whole["optimizer"])
    checkpointing.save(tmp_path, epoch=1, metrics={}, **whole)
    train(whole["model"], 4, whole["optimizer"])
    saved = checkpointing.read(tmp_path)["model"]
    assert set(saved) == {
        "head.weight",
        "head.bias",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    }
    resumed = parts()
    checkpointing.restore(tmp_path, **resumed)
    train(resumed["model"], 4, resumed["optimizer"])
    expected = whole["model"].model.state_dict()
    for name, value in resumed["model"].model.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_a_state_loads_into_a_model_that_trains_less_and_not_into_one_that_trains_more() -> None:
    frozen, free = network(), network(1)
    freeze(frozen, "all_but_head", head="head")
    load_trainable_state(frozen, trainable_state(free))
    assert torch.equal(frozen.get_submodule("stem").weight, free.get_submodule("stem").weight)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"lacks stem\.weight, stem\.bias.*freeze the model as it was"):
        load_trainable_state(free, trainable_state(frozen))
    with pytest.raises(ValueError, match="has other, which Sequential lacks"):
        load_trainable_state(frozen, {**trainable_state(frozen), "other": torch.zeros(1)})


def test_a_shared_frozen_weight_is_left_out_under_both_names() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    freeze(model, "all_but_head", head="2")
    assert list(trainable_state(model)) == ["2.weight", "2.bias"]


# -------------------------------------------------------------------------------------------------------- layers


def test_later_layers_learn_faster() -> None:
    groups = layerwise_groups(network(), lr=0.8, decay=0.5)
    assert [group["lr"] for group in groups] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert [len(group["params"]) for group in groups] == [2, 2, 2, 2]


def test_frozen_layers_are_in_no_group_and_shared_ones_in_one() -> None:
    model = network()
    freeze(model, "stem")
    assert [group["lr"] for group in layerwise_groups(model, 0.8, 0.5)] == pytest.approx([0.2, 0.4, 0.8])
    shared = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    shared[1].weight = shared[0].weight
    groups = layerwise_groups(shared, 0.8, 0.5)
    assert [len(group["params"]) for group in groups] == [2, 1]
    torch.optim.SGD(groups, 0.1)


def test_parameters_outside_of_the_layers_belong_to_the_first() -> None:
    model = network()
    model.register_parameter("token", nn.Parameter(torch.zeros(3)))
    groups = layerwise_groups(model, 1.0, 0.1, layers=["body", "head"])
    assert [(group["lr"], len(group["params"])) for group in groups] == [(pytest.approx(0.1), 7), (1.0, 2)]
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    assert [len(group["params"]) for group in layerwise_groups(nn.Linear(2, 2), 1.0, 0.1)] == [2]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lr": 0.0}, "lr: 0.0"),
        ({"decay": 0.0}, "decay: 0.0"),
        ({"decay": 1.5}, "decay: 1.5"),
        ({"layers": ["fc"]}, "no module 'fc'"),
        ({"model": network().requires_grad_(False)}, "a frozen model with nothing left to train"),
    ],
)
def test_bad_layers_are_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layerwise_groups(**{"model": network(), "lr": 0.1, "decay": 0.5, **changed})
