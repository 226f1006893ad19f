"""The quick trainable."""

import dataclasses
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from trainables import cifar, digits

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.1), ("adam", 0.003)])
def test_it_learns(trial: Any, optimizer: Any, lr: float) -> None:
    config = digits.Config(optimizer=optimizer, lr=lr)
    last = trial(digits, config)[-1]
    assert last["val_accuracy"] > 0.94
    assert digits.evaluate(config, last["folder"])["test_accuracy"] > 0.95


def test_a_bad_learning_rate_shows(trial: Any) -> None:
    assert trial(digits, digits.Config(lr=1e-5, epochs=5))[-1]["val_accuracy"] < 0.5


def test_reports_and_evaluate_agree(trial: Any) -> None:
    config = digits.Config(epochs=2)
    reports = trial(digits, dataclasses.asdict(config))
    for report in reports:
        keys = ["epoch", "val_accuracy", "val_loss", "train_loss", "folder"]
        assert list(report) == keys
        for name, value in digits.evaluate(config, report["folder"], "val").items():
            assert value == pytest.approx(report[name], abs=1e-6)
    with pytest.raises(ValueError, match="allowed: val, test"):
        digits.evaluate(config, reports[0]["folder"], "train")


@pytest.mark.parametrize("micro_batch", [32, 24, 1, 500])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_micro_batch_changes_nothing_but_the_memory(trial: Any, micro_batch: int, optimizer: Any) -> None:
    config = digits.Config(epochs=2, lr=0.01, optimizer=optimizer, dropout=0.0)
    whole = trial(digits, config)
    parts = trial(digits, dataclasses.replace(config, micro_batch=micro_batch))
    for one, other in zip(whole, parts, strict=True):
        assert other["train_loss"] == pytest.approx(one["train_loss"], rel=1e-4)
        assert other["val_loss"] == pytest.approx(one["val_loss"], rel=1e-4)


def test_an_epoch_takes_milliseconds(trial: Any) -> None:
    trial(digits, digits.Config(epochs=1))  # imports scikit-learn
    started = time.process_time()
    trial(digits, digits.Config(epochs=20))
    assert (time.process_time() - started) / 20 < 0.1


def test_parts_are_disjoint_and_the_test_images_never_change() -> None:
    first, second = digits.load(0), digits.load(1)
    assert {name: len(x) for name, (x, _) in first.items()} == {
        "train": 1077,
        "val": 360,
        "test": 360,
    }
    assert torch.equal(first["test"][0], second["test"][0])
    assert not torch.equal(first["val"][0], second["val"][0])


def test_the_estimated_size_of_a_checkpoint(trial: Any) -> None:
    for optimizer in ("sgd", "adam"):
        config = digits.Config(epochs=1, optimizer=optimizer, hidden=256)
        actual = (trial(digits, config)[0]["folder"] / "checkpoint.pt").stat().st_size
        assert digits.checkpoint_bytes(config) == pytest.approx(actual, rel=0.1)


def test_prepare_refuses_impossible_values() -> None:
    assert digits.prepare(digits.Config()) == {}
    bad = {"epochs": 0, "dropout": 1.0}
    with pytest.raises(ValueError, match=r"epochs: 0, must be .*; dropout: 1\.0"):
        digits.prepare(digits.Config(**bad))


def test_imports_only_what_it_must() -> None:
    """Checking an experiment imports the trainables: that must be quick, and free of effects."""
    code = (
        "import sys; import trainables.digits, trainables.cifar; "
        "print(*(m for m in sys.modules if m in ('sklearn', 'torchvision') or m.partition('.')[0] == 'tuner'))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    helpers = ("checkpointing", "data_errors", "device", "distributed", "fetching", "keeping")
    assert set(done.stdout.split()) == {"tuner", "tuner.training", *(f"tuner.training.{name}" for name in helpers)}
    assert cifar.Config().dataset == "cifar10"
