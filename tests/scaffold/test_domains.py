"""The domain that a hyperparameter's name, type and default propose."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.scaffold.domains import Proposal, powers_of_two, propose
from tuner.scaffold.hyperparameters import UNKNOWN, Hyperparameter
from tuner.testing import space_of


def proposed(name: str, default: Any, kind: type | None = None, **more: Any) -> Proposal:
    return propose(Hyperparameter(name, kind or (None if default is UNKNOWN else type(default)), default, 1, **more))


@pytest.mark.parametrize(
    ("name", "default", "domain"),
    [
        ("lr", 0.1, {"loguniform": [0.01, 1.0]}),
        ("LEARNING_RATE", 3e-4, {"loguniform": [3e-5, 3e-3]}),
        ("learningRate", 0.5, {"loguniform": [0.05, 1.0]}),
        ("encoder_lr", 5.0, {"loguniform": [0.5, 5.0]}),
        ("lr", 0.0, {"loguniform": [1e-4, 0.01]}),
        ("weight_decay", 0.0, {"loguniform": [1e-5, 1e-3]}),
        ("wd", 5e-4, {"loguniform": [5e-5, 5e-3]}),
        ("dropout", 0.1, {"uniform": [0.0, 0.5]}),
        ("input_dropout", 0.8, {"uniform": [0.0, 0.99]}),
        ("momentum", 0.9, {"uniform": [0.8, 0.99]}),
        ("momentum", 0.0, {"uniform": [0.0, 0.99]}),
        ("gamma", 0.99, {"uniform": [0.9, 0.999]}),
        ("label_smoothing", 0.1, {"uniform": [0.0, 0.3]}),
        ("flip_prob", 0.5, {"uniform": [0.0, 0.99]}),
        ("hidden_dim", 64, {"choice": [16, 32, 64, 128]}),
        ("BATCH_SIZE", 100, {"choice": [32, 64, 128, 256]}),
        ("width", 1, {"choice": [1, 2]}),
        ("train_batch_size", 8, {"choice": [2, 4, 8, 16]}),
        ("lora_rank", 8, {"choice": [2, 4, 8, 16]}),
        ("num_hidden_layers", 2, {"randint": [1, 5]}),
        ("n_estimators", 100, {"lograndint": [25, 401]}),
        ("augment", True, {"choice": [True, False]}),
    ],
)
def test_what_is_searched(name: str, default: Any, domain: dict[str, Any]) -> None:
    found = proposed(name, default)
    assert (found.use, found.domain) == ("search", domain)
    assert space_of({name: found.domain}).parameters


@pytest.mark.parametrize(
    ("name", "default", "domain"),
    [
        ("clip", 1.0, {"loguniform": [0.1, 10.0]}),
        ("lr_decay", 0.1, {"loguniform": [0.01, 1.0]}),
        ("min_lr", 1e-6, {"loguniform": [1e-7, 1e-5]}),
        ("kernel", 3, {"randint": [1, 6]}),
        ("warmup_steps", 100, {"lograndint": [25, 401]}),
    ],
)
def test_a_guess_is_a_comment(name: str, default: Any, domain: dict[str, Any]) -> None:
    found = proposed(name, default)
    assert (found.use, found.domain) == ("unsure", domain)
    assert space_of({name: found.domain}).parameters


@pytest.mark.parametrize(
    ("name", "default", "use"),
    [
        ("epochs", 10, "fixed"),
        ("max_steps", 1000, "fixed"),
        ("seed", 0, "fixed"),
        ("epochs", None, "left"),
        ("log_steps", 10, "left"),
        ("data_dir", "data", "left"),
        ("device", "cuda", "left"),
        ("num_workers", 4, "left"),
        ("test_batch_size", 1000, "left"),
        ("input_dim", 784, "left"),
        ("out_features", 10, "left"),
        ("num_classes", 10, "left"),
        ("log_interval", 10, "left"),
        ("no_cuda", False, "left"),
        ("val_fraction", 0.1, "left"),
        ("optimizer", "sgd", "left"),
        ("gamma", 2.0, "left"),
        ("lr", float("nan"), "left"),
        ("layers", 0, "left"),
    ],
)
def test_what_is_not_searched(name: str, default: Any, use: str) -> None:
    assert proposed(name, default, int if default is None else None).use == use


def test_choices_come_before_the_name() -> None:
    assert proposed("hidden", 64, choices=(64, 128)).domain == {"choice": [64, 128]}
    assert proposed("optimizer", "sgd", choices=("sgd", "adam")).written == "{choice: [sgd, adam], default: sgd}"
    assert proposed("optimizer", "lion", choices=("sgd", "adam")).written == "{choice: [sgd, adam]}"
    assert proposed("optimizer", "sgd", choices=("sgd",)).use == "left"
    assert proposed("device", "cpu", choices=("cpu", "cuda")).use == "left"


def test_a_required_one_without_a_rule_is_fixed() -> None:
    assert proposed("data_dir", UNKNOWN, str, required=True).use == "fixed"
    assert proposed("model", UNKNOWN, str, required=True).use == "fixed"
    assert proposed("lr", UNKNOWN, float, required=True).domain == {"loguniform": [1e-4, 0.01]}


def test_what_a_trial_cannot_pass_is_left_or_unsure() -> None:
    assert proposed("lr", 0.1, note="a text").use == "left"
    assert proposed("augment", True, can_be_false=False).use == "unsure"


@pytest.mark.parametrize(("default", "sizes"), [(1, [1, 2]), (3, [1, 2, 4, 8]), (256, [64, 128, 256, 512])])
def test_powers_of_two(default: int, sizes: list[int]) -> None:
    assert powers_of_two(default) == sizes
