"""The quick trainable."""

import dataclasses
import subprocess
import sys
import time
from collections.abc import Callable
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


@pytest.mark.processes
def test_imports_only_what_it_must() -> None:
    """Checking an experiment imports the trainables: that must be quick, and free of effects."""
    code = (
        "import sys; import trainables.digits, trainables.cifar; "
        "print(*(m for m in sys.modules if m in ('sklearn', 'torchvision') or m.partition('.')[0] == 'tuner'))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    helpers = ["background_saving", "checkpointing", "data_errors", "device", "distributed", "fetching", "keeping"]
    helpers += ["reporting", "stacked", "stacked_optimizers"]
    assert set(done.stdout.split()) == {"tuner", "tuner.training", *(f"tuner.training.{name}" for name in helpers)}
    assert cifar.Config().dataset == "cifar10"


def alone(trial: Any, configs: list[digits.Config]) -> list[list[dict[str, Any]]]:
    return [trial(digits, config) for config in configs]


def together(
    folder: Path, configs: list[digits.Config], starts: list[Path] | None = None, stops: tuple[int, int] = (-1, -1)
) -> list[list[dict[str, Any]]]:
    """The reports of each, with copies of their checkpoints; ``stops``: that one stops after that epoch."""
    reports: list[list[dict[str, Any]]] = [[] for _ in configs]

    def report(number: int, metrics: dict[str, Any], save: Callable[[str], None]) -> bool:
        saved = folder / f"{number}-{metrics['epoch']}"
        save(str(saved))
        reports[number].append({**metrics, "folder": saved})
        return (number, metrics["epoch"]) != stops

    digits.train_many(configs, report, starts)
    return reports


def assert_close(found: list[dict[str, Any]], expected: list[dict[str, Any]], within: float = 1e-5) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for name, value in one.items():
            assert name == "folder" or value == pytest.approx(other[name], abs=within), name


SEVERAL = {
    "sgd": [
        digits.Config(epochs=5, lr=0.02 * (i + 1), momentum=0.1 * i, weight_decay=1e-3 * i, dropout=0.1 * i, seed=i)
        for i in range(8)
    ],
    "adam": [digits.Config(epochs=5, optimizer="adam", lr=1e-3 * (i + 1), dropout=0.1 * i, seed=i) for i in range(8)],
}


@pytest.mark.parametrize("optimizer", SEVERAL)
def test_trained_as_one_each_gets_its_own_numbers(trial: Any, tmp_path: Path, optimizer: str) -> None:
    configs = SEVERAL[optimizer]
    for found, expected in zip(together(tmp_path, configs), alone(trial, configs), strict=True):
        assert_close(found, expected)


def test_one_leaves_and_the_others_continue(trial: Any, tmp_path: Path) -> None:
    configs = SEVERAL["sgd"][:3]
    reports = together(tmp_path, configs, stops=(1, 2))
    assert [len(one) for one in reports] == [5, 2, 5]
    for found, expected in zip(reports, alone(trial, configs), strict=True):
        assert_close(found, expected[: len(found)])


@pytest.mark.parametrize("optimizer", SEVERAL)
def test_either_way_continues_from_the_checkpoints_of_the_other(trial: Any, tmp_path: Path, optimizer: str) -> None:
    configs = SEVERAL[optimizer][:3]
    through = alone(trial, configs)
    starts = [reports[1]["folder"] for reports in through]
    for found, expected in zip(together(tmp_path / "a", configs, starts), through, strict=True):
        assert_close(found, expected[2:])
    for config, reports, expected in zip(configs, together(tmp_path / "b", configs), through, strict=True):
        assert_close(trial(digits, config, resume=reports[1]["folder"]), expected[2:])


def test_a_micro_batch_draws_the_same_numbers(trial: Any, tmp_path: Path) -> None:
    configs = [digits.Config(epochs=2, micro_batch=24, seed=seed) for seed in (0, 1)]
    for found, expected in zip(together(tmp_path, configs), alone(trial, configs), strict=True):
        assert_close(found, expected)


def test_each_leaves_at_its_own_end(trial: Any, tmp_path: Path) -> None:
    configs = [dataclasses.replace(SEVERAL["adam"][i], epochs=epochs) for i, epochs in enumerate((3, 1, 4))]
    through = alone(trial, configs)
    for found, expected in zip(together(tmp_path / "a", configs), through, strict=True):
        assert_close(found, expected)
    starts = [reports[0]["folder"] for reports in through]
    for found, expected in zip(together(tmp_path / "b", configs, starts), through, strict=True):
        assert_close(found, expected[1:])
    assert together(tmp_path / "c", configs[1:2], starts[1:2]) == [[]]


def test_those_that_continue_have_finished_the_same_epochs(trial: Any, tmp_path: Path) -> None:
    configs = SEVERAL["sgd"][:2]
    first = trial(digits, configs[0], stop_after=1)[0]["folder"]
    with pytest.raises(ValueError, match=r"continue after the same epoch; these after \[1, 0\]"):
        digits.train_many(configs, lambda *_: True, [first, None])


def test_a_checkpoint_without_momentum_continues_with_momentum(trial: Any, tmp_path: Path) -> None:
    """As in population based training."""
    configs = [digits.Config(epochs=4, momentum=0.0, seed=0), digits.Config(epochs=4, seed=1)]
    before = {"alone": alone(trial, configs), "together": together(tmp_path / "a", configs)}
    changed = [dataclasses.replace(config, momentum=0.8) for config in configs]
    expected = [trial(digits, c, resume=r[1]["folder"]) for c, r in zip(changed, before["alone"], strict=True)]
    for way, reports in before.items():
        found = together(tmp_path / way, changed, [one[1]["folder"] for one in reports])
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    for config, reports, other in zip(changed, before["together"], expected, strict=True):
        assert_close(trial(digits, config, resume=reports[1]["folder"]), other)


@pytest.mark.parametrize("name", ["hidden", "batch_size", "micro_batch", "split_seed"])
def test_the_shape_is_what_must_be_equal(name: str) -> None:
    config = digits.Config()
    same = dataclasses.replace(config, epochs=3, lr=0.2, momentum=0.1, dropout=0.3, weight_decay=0.0, seed=5)
    assert digits.shape(config) == digits.shape(same) == digits.shape(dataclasses.asdict(same))
    assert digits.shape(config) != digits.shape(dataclasses.replace(config, **{name: 7}))


def test_other_shapes_do_not_train_as_one() -> None:
    with pytest.raises(ValueError, match="the same hidden, optimizer, batch_size, micro_batch and split_seed"):
        digits.train_many([digits.Config(hidden=8), digits.Config(hidden=9)], lambda *_: True)
