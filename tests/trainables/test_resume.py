"""A trial that was interrupted and resumed is the trial that ran through, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch

from trainables import cifar, digits
from tuner.training import checkpointing

EPOCHS = 3


def weights(report: dict[str, Any]) -> dict[str, Any]:
    return checkpointing.read(report["folder"])


def assert_same(left: Any, right: Any, where: str = "") -> None:
    """Equality of nested dictionaries, lists, tensors (bit for bit) and values."""
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_same(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), where
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            assert_same(a, b, f"{where}/{i}")
    else:
        assert left == right, where


def assert_resumes_identically(trial: Any, module: Any, config: Any) -> None:
    through = trial(module, config)
    assert [r["epoch"] for r in through] == list(range(1, EPOCHS + 1))
    expected = weights(through[-1])
    expected["metrics"].pop("images_per_second", None)
    for stop in range(1, EPOCHS):
        stopped = trial(module, config, stop_after=stop)
        assert [r["epoch"] for r in stopped] == list(range(1, stop + 1))
        torch.manual_seed(999)  # a new process has other states than the interrupted one had
        resumed = trial(module, config, resume=stopped[-1]["folder"])
        assert [r["epoch"] for r in resumed] == list(range(stop + 1, EPOCHS + 1))
        got = weights(resumed[-1])
        got["metrics"].pop("images_per_second", None)
        assert_same(expected, got, f"stopped after {stop}")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.1), ("adamw", 0.003), ("adam", 0.003)])
def test_cifar(trial: Any, small_npz: Path, tmp_path: Path, optimizer: Any, lr: float, precision: Any) -> None:
    config = cifar.Config(
        dataset=f"npz:{small_npz}",
        data_dir=str(tmp_path / "data"),
        epochs=EPOCHS,
        batch_size=50,
        width=8,
        optimizer=optimizer,
        lr=lr,
        precision=precision,
    )
    assert_resumes_identically(trial, cifar, config)


def test_cifar_with_the_recipe_of_fast_gpus(trial: Any, small_npz: Path, tmp_path: Path) -> None:
    config = cifar.Config(
        dataset=f"npz:{small_npz}",
        data_dir=str(tmp_path / "data"),
        epochs=EPOCHS,
        batch_size=50,
        width=4,
        network="whitened",
        optimizer="muon",
        lr=0.2,
        momentum=0.6,
        alternate=True,
        views=6,
    )
    assert_resumes_identically(trial, cifar, config)


@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.1), ("adam", 0.003)])
def test_digits(trial: Any, optimizer: Any, lr: float) -> None:
    config = digits.Config(epochs=EPOCHS, optimizer=optimizer, lr=lr, dropout=0.3)
    assert_resumes_identically(trial, digits, config)


def test_a_finished_trial_reports_nothing_more(trial: Any) -> None:
    config = digits.Config(epochs=2)
    done = trial(digits, config)
    assert trial(digits, config, resume=done[-1]["folder"]) == []


def test_new_hyperparameters_apply_to_a_resumed_trial(trial: Any) -> None:
    """Population based training hands a trial another one's weights and its own new values."""
    first = trial(digits, digits.Config(epochs=1, lr=0.1, momentum=0.9))
    config = digits.Config(epochs=2, lr=0.02, momentum=0.8)
    second = trial(digits, config, resume=first[-1]["folder"])
    group = weights(second[-1])["optimizer"]["state"]["param_groups"][0]
    assert (group["lr"], group["momentum"]) == (0.02, 0.8)


def test_another_optimizer_starts_with_fresh_state(trial: Any) -> None:
    first = trial(digits, digits.Config(epochs=1))
    config = digits.Config(epochs=2, optimizer="adam", lr=0.003)
    assert len(trial(digits, config, resume=first[-1]["folder"])) == 1
