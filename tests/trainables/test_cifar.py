"""The image trainable: augmentation, schedule, reports, evaluation, and what it refuses."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainables import cifar, image_networks
from trainables.image_batches import alternate_flips, augment, draw_moves, normalise, split_ids, views
from trainables.image_optimizers import Muon, OneCycle, orthogonal
from tuner.training.device import fastest_precision


@pytest.fixture
def config(small_npz: Path, tmp_path: Path) -> cifar.Config:
    data_dir = str(tmp_path / "data")
    return cifar.Config(dataset=f"npz:{small_npz}", data_dir=data_dir, epochs=2, batch_size=50, width=8)


# --------------------------------------------------------------------------------- augmentation

IMAGES = torch.arange(3 * 32 * 32 * 3).remainder(251).to(torch.uint8).view(3, 32, 32, 3)


def test_no_move_changes_nothing() -> None:
    ids = torch.tensor([2, 0])
    assert torch.equal(augment(IMAGES, ids, torch.zeros(2, 3, dtype=torch.int64)), IMAGES[ids])


def test_mirror() -> None:
    got = augment(IMAGES, torch.tensor([1]), torch.tensor([[0, 0, 1]]))
    assert torch.equal(got[0], IMAGES[1].flip(1))


@pytest.mark.parametrize("mirror", [0, 1])
@pytest.mark.parametrize(("down", "right"), [(0, 2), (2, 0), (-2, 1), (16, -16)])
def test_a_shift_is_a_crop_of_the_image_padded_by_reflection(down: int, right: int, mirror: int) -> None:
    got = augment(IMAGES, torch.tensor([0]), torch.tensor([[down, right, mirror]]))[0]
    planes = IMAGES[0].permute(2, 0, 1).float()[None]
    padded = torch.nn.functional.pad(planes, (16, 16, 16, 16), mode="reflect")[0]
    crop = padded[:, 16 + down : 48 + down, 16 + right : 48 + right].permute(1, 2, 0)
    assert torch.equal(got.float(), crop.flip(1) if mirror else crop)


def test_moves_cover_the_whole_range_and_nothing_else() -> None:
    moves = draw_moves(2_000, 2, True, torch.Generator().manual_seed(0))
    assert moves[:, :2].unique().tolist() == [-2, -1, 0, 1, 2]
    assert 0.45 < moves[:, 2].float().mean() < 0.55
    assert not draw_moves(100, 0, False, torch.Generator()).any()


def test_normalised_batches_are_channels_last() -> None:
    batch = normalise(IMAGES)
    assert batch.shape == (3, 3, 32, 32)
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert batch[0, 0, 0, 0].item() == pytest.approx((0 - 120.7) / 64.2)


def test_the_split_depends_on_its_own_seed_only() -> None:
    train, held_out = split_ids(100, 0.1, seed=0)
    assert len(held_out) == 10
    assert sorted([*train.tolist(), *held_out.tolist()]) == list(range(100))
    assert torch.equal(split_ids(100, 0.1, seed=0)[1], held_out)
    assert not torch.equal(split_ids(100, 0.1, seed=1)[1], held_out)


def test_alternating_flips_show_each_image_from_both_sides_in_two_epochs() -> None:
    first, second, third = (alternate_flips(200, epoch, seed=0) for epoch in (1, 2, 3))
    assert torch.equal(first, 1 - second)
    assert torch.equal(first, third)
    assert 60 < first.sum() < 140


@pytest.mark.parametrize("count", [1, 2, 6])
def test_views_have_weights_that_add_up_to_one(count: int) -> None:
    images = normalise(IMAGES)
    found = views(images, count)
    assert len(found) == count
    assert sum(weight for weight, _ in found) == pytest.approx(1)
    assert all(view.shape == images.shape for _, view in found)
    assert torch.equal(found[0][1], images)
    if count > 1:
        assert torch.equal(found[1][1], images.flip(3))
    if count == 6:
        assert torch.equal(found[2][1][:, :, :-1, :-1], images[:, :, 1:, 1:])
        assert torch.equal(found[4][1][:, :, 1:, 1:], images[:, :, :-1, :-1])


# ---------------------------------------------------------------------- the network for fast GPUs


@pytest.fixture
def fast(config: cifar.Config) -> cifar.Config:
    return dataclasses.replace(
        config, network="whitened", optimizer="muon", lr=0.2, momentum=0.6, weight_decay=4e-3, alternate=True, views=6
    )


def test_the_first_layer_decorrelates_the_pixels_of_a_patch(shapes: dict[str, Any]) -> None:
    images = normalise(torch.from_numpy(shapes["x_train"][:2_000]))
    network = image_networks.Whitened(8, 10)
    network.whiten(images)
    responses = network.whitening(images)[:, :12].transpose(0, 1).flatten(1)  # then come the same with the other sign
    assert torch.equal(network.whitening.weight[:12], -network.whitening.weight[12:])
    covariance = responses @ responses.T / responses.shape[1]
    assert (covariance - torch.diag(covariance.diag())).abs().max() < 0.02
    assert covariance.diag().max() < 1.01
    assert (covariance.diag() > 0.9).sum() > 6  # smaller variances than the regulariser stay small


def test_muons_moves_are_nearly_orthogonal() -> None:
    for shape in [(8, 40), (40, 8)]:
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape, generator=torch.Generator().manual_seed(0)), 5))
        assert 0.6 < values.min() < values.max() < 1.3


def test_muon_steps_kernels_by_their_direction_and_the_rest_as_sgd() -> None:
    start, gradient = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 0.25])
    rest, expected = (torch.nn.Parameter(start.clone()) for _ in range(2))
    kernel = torch.nn.Parameter(torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(0)))
    muon = Muon([kernel], [{"params": [rest], "lr": 0.1, "weight_decay": 0.01}], lr=0.0, momentum=0.6)
    sgd = torch.optim.SGD([expected], lr=0.1, momentum=0.85, nesterov=True, weight_decay=0.01)
    for _ in range(3):
        rest.grad, expected.grad = gradient.clone(), gradient.clone()
        kernel.grad = torch.ones_like(kernel)
        muon.step()
        sgd.step()
    assert torch.allclose(rest, expected)
    assert kernel.norm().item() == pytest.approx(2)  # the square root of its 4 output channels


def test_the_fast_recipe_learns(trial: Any, shapes: dict[str, Any], fast: cifar.Config, tmp_path: Path) -> None:
    path = tmp_path / "shapes.npz"
    np.savez(path, **{name: values[:2_000] for name, values in shapes.items()})
    reports = trial(cifar, dataclasses.replace(fast, dataset=f"npz:{path}", epochs=4))
    assert reports[-1]["val_accuracy"] > 0.5
    got = cifar.evaluate(dataclasses.replace(fast, dataset=f"npz:{path}"), reports[-1]["folder"], "val")
    assert got["val_accuracy"] == pytest.approx(reports[-1]["val_accuracy"], abs=1e-6)


def test_reports_every_few_epochs_and_at_the_end(trial: Any, fast: cifar.Config) -> None:
    reports = trial(cifar, dataclasses.replace(fast, epochs=5, report_every=2))
    assert [one["epoch"] for one in reports] == [2, 4, 5]


@pytest.mark.parametrize("network", ["resnet", "whitened"])
def test_a_compiled_network_is_the_same_network(
    trial: Any, fast: cifar.Config, network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer: Any = "muon" if network == "whitened" else "sgd"
    fast = dataclasses.replace(fast, network=network, optimizer=optimizer, precision="fp32", epochs=1)
    (plain,) = trial(cifar, fast)
    # All of it but the last stage, which writes C++ or Triton and takes half a minute.
    compiled = functools.partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", compiled)
    (found,) = trial(cifar, dataclasses.replace(fast, compile=True))
    assert found["train_loss"] == pytest.approx(plain["train_loss"], rel=1e-3)


# ------------------------------------------------------------------------------------- training


def test_one_report_an_epoch_from_a_plain_dict(trial: Any, config: cifar.Config) -> None:
    reports = trial(cifar, dataclasses.asdict(config))
    keys = "epoch val_accuracy val_loss train_loss lr images_per_second device precision folder"
    assert [list(r) for r in reports] == [keys.split()] * 2
    assert [r["epoch"] for r in reports] == [1, 2]
    assert all(0 <= r["val_accuracy"] <= 1 and r["images_per_second"] > 0 for r in reports)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_evaluate_repeats_the_reported_numbers(trial: Any, config: cifar.Config, precision: Any) -> None:
    config = dataclasses.replace(config, precision=precision)
    for report in trial(cifar, config):
        got = cifar.evaluate(config, report["folder"], "val")
        assert got.keys() == {"val_accuracy", "val_loss"}
        for name, value in got.items():
            assert value == pytest.approx(report[name], abs=1e-6)
    assert cifar.evaluate(config, report["folder"]).keys() == {"test_accuracy", "test_loss"}
    with pytest.raises(ValueError, match="allowed: val, test"):
        cifar.evaluate(config, report["folder"], "train")


def test_the_seed_matters_and_the_split_does_not_follow_it(trial: Any, config: cifar.Config) -> None:
    one = dataclasses.replace(config, epochs=1)
    first, again = trial(cifar, one), trial(cifar, one)
    other = trial(cifar, dataclasses.replace(one, seed=1))
    assert first[0]["train_loss"] == again[0]["train_loss"] != other[0]["train_loss"]


@pytest.mark.parametrize("micro_batch", [25, 20, 1])
def test_without_batch_norm_a_micro_batch_changes_nothing_but_the_memory(
    trial: Any, config: cifar.Config, micro_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_networks.nn, "BatchNorm2d", lambda channels, momentum: torch.nn.Identity())  # type: ignore[attr-defined]
    config = dataclasses.replace(config, lr=0.01, precision="fp32", epochs=1)
    (whole,) = trial(cifar, config)
    (parts,) = trial(cifar, dataclasses.replace(config, micro_batch=micro_batch))
    assert parts["lr"] == whole["lr"]
    assert parts["train_loss"] == pytest.approx(whole["train_loss"], rel=1e-5)
    assert parts["val_loss"] == pytest.approx(whole["val_loss"], rel=1e-4)


def test_a_step_is_cut_into_pieces_that_cover_it() -> None:
    assert cifar.pieces(2, 10, None) == cifar.pieces(2, 10, 99) == [slice(20, 30)]
    assert cifar.pieces(1, 10, 4) == [slice(10, 14), slice(14, 18), slice(18, 20)]


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "adam", "muon"])
def test_the_estimated_size_of_a_checkpoint(trial: Any, config: cifar.Config, optimizer: Any) -> None:
    network: Any = "whitened" if optimizer == "muon" else "resnet"
    config = dataclasses.replace(config, epochs=1, optimizer=optimizer, network=network, width=16)
    actual = (trial(cifar, config)[0]["folder"] / "checkpoint.pt").stat().st_size
    assert cifar.checkpoint_bytes(config) == pytest.approx(actual, rel=0.1)


def test_weight_decay_spares_biases_and_norms() -> None:
    config = cifar.Config(width=8)
    decayed, spared = cifar.build_optimizer(config, cifar.build(config, 10)).param_groups
    assert decayed["weight_decay"] == config.weight_decay
    assert spared["weight_decay"] == 0
    assert all(p.ndim > 1 for p in decayed["params"])
    assert all(p.ndim == 1 for p in spared["params"])


@pytest.mark.parametrize("pct_start", [0.0, 0.3, 1.0])
def test_the_schedule_rises_to_the_peak_and_falls_to_a_hundredth(pct_start: float) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    schedule = OneCycle(optimizer, steps=101, pct_start=pct_start)
    rates = [schedule.set_next() for _ in range(101)]
    top = rates.index(max(rates))
    assert top == pytest.approx(100 * pct_start, abs=1)
    assert max(rates) == pytest.approx(2.0, rel=0.02)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    if pct_start < 1:
        assert rates[-1] == pytest.approx(0.02)
    assert optimizer.param_groups[0]["lr"] == rates[-1]


# ------------------------------------------------------------------------- refusals and hardware


def test_every_impossible_value_is_named() -> None:
    bad = {
        "network": "vgg",
        "views": 3,
        "report_every": 0,
        "head_lr": 0,
        "epochs": 0,
        "lr": -1.0,
        "optimizer": "adamq",
        "val_fraction": 1.0,
        "precision": "fp8",
    }
    with pytest.raises(ValueError, match="must be") as caught:
        cifar.prepare(cifar.Config(**bad))
    assert all(f"{name}: {value!r}, must be" in str(caught.value) for name, value in bad.items())


def test_muon_is_for_the_network_that_bears_its_steps(config: cifar.Config) -> None:
    with pytest.raises(ValueError, match="optimizer: 'muon', must be sgd, adamw or adam, or muon for network whitened"):
        cifar.prepare(dataclasses.replace(config, optimizer="muon"))


def test_a_batch_larger_than_the_data_is_refused(trial: Any, config: cifar.Config) -> None:
    with pytest.raises(ValueError, match="batch_size: 500, but only 216 images"):
        trial(cifar, dataclasses.replace(config, batch_size=500))


@pytest.mark.parametrize(
    ("abilities", "expected"),
    [
        ({"avx2": True}, "fp32"),
        ({"avx512_bf16": True}, "bf16"),
        ({"amx_bf16": True}, "bf16"),
        ({}, "fp32"),
    ],
)
def test_auto_precision_follows_the_processor(
    monkeypatch: pytest.MonkeyPatch, abilities: dict[str, bool], expected: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: abilities)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    cpu = torch.device("cpu")
    assert fastest_precision(cpu, "auto") == expected
    assert fastest_precision(cpu, "fp32") == "fp32"
    assert fastest_precision(cpu, "bf16") == "bf16"


@pytest.mark.parametrize("native", [True, False])
def test_auto_precision_follows_the_gpu(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    assert fastest_precision(torch.device("cuda")) == ("bf16" if native else "fp32")
