"""The trainable for folders of images: exact after a resume, whatever is switched on; scored as it reported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.trainables.test_resume import assert_resumes_identically
from trainables import image_folders, images
from tuner.training.data_errors import DataUnavailable
from tuner.training.transfer import freeze

pytestmark = pytest.mark.filterwarnings("ignore:`get_trial_resources` is meant to:UserWarning")


@pytest.fixture(scope="module")
def folder(shapes: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of 20 training images and 10 for validation; the third has half as many. No test images."""
    root = tmp_path_factory.mktemp("images")
    for label, name in enumerate(("disc", "square", "triangle")):
        own = shapes["x_train"][shapes["y_train"] == label]
        parts = {"train": own[: 20 if label < 2 else 10], "val": own[30:40]}
        for part, arrays in parts.items():
            (root / part / name).mkdir(parents=True)
            for number, array in enumerate(arrays):
                Image.fromarray(array).save(root / part / name / f"{number}.png")
    return root


EVERYTHING = {
    "schedule": "one_cycle",
    "max_norm": 1.0,
    "l1": 1e-5,
    "l2": 1e-4,
    "label_smoothing": 0.1,
    "mix": "cutmix",
    "ema": 0.8,
    "sampler": "balanced",
    "patience": 9,
    "micro_batch": 7,
    "layer_decay": 0.7,
    "precision": "bf16",
}


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "fp32", "pretrained": False},
        EVERYTHING,
        {"freeze": "all_but_head", "thaw_epoch": 3, "schedule": "plateau", "ema": 0.5},
        {"freeze": "stem", "mix": "mixup"},
    ],
    ids=["plain", "everything", "thawed", "stem"],
)
def test_a_resumed_trial_is_the_uninterrupted_one(trial: Any, folder: Path, options: dict[str, Any]) -> None:
    assert_resumes_identically(trial, images, images.Config(data=str(folder), epochs=3, batch_size=10, **options))


@pytest.mark.parametrize("ema", [None, 0.5])
def test_evaluate_repeats_the_report(trial: Any, folder: Path, ema: float | None) -> None:
    config = images.Config(data=str(folder), epochs=2, ema=ema, freeze="stem", thaw_epoch=2)
    for report in trial(images, config):
        scores = images.evaluate(config, report["folder"], "val")
        assert scores == {name: report[name] for name in scores}
    test = images.evaluate(config, report["folder"])
    assert list(test) == ["test_accuracy", "test_balanced_accuracy", "test_macro_f1", "test_loss"]


def test_frozen_parts_stay_as_they_were_and_are_not_in_the_checkpoint(trial: Any, folder: Path) -> None:
    config = images.Config(data=str(folder), epochs=2, freeze="all_but_head")
    report = trial(images, config)[-1]
    before, after = images.build(config, 3)[0], images.load_model(config, report["folder"])
    changed = [name for name, value in after.state_dict().items() if not torch.equal(value, before.state_dict()[name])]
    assert changed == ["head.weight", "head.bias"]
    whole = trial(images, images.Config(data=str(folder), epochs=1))[-1]
    sizes = [(r["folder"] / "checkpoint.pt").stat().st_size for r in (report, whole)]
    assert sizes[0] < sizes[1] / 5


def test_more_trains_after_the_thaw(trial: Any, folder: Path) -> None:
    config = images.Config(data=str(folder), epochs=3, freeze="all_but_head", thaw_epoch=3)
    second, third = (images.load_model(config, report["folder"]) for report in trial(images, config)[1:])
    start = images.build(config, 3)[0].state_dict()["stage2.0.0.weight"]
    assert torch.equal(second.state_dict()["stage2.0.0.weight"], start)
    assert not torch.equal(third.state_dict()["stage2.0.0.weight"], start)


def test_there_is_nothing_to_thaw_in_a_network_that_is_not_frozen(trial: Any, folder: Path) -> None:
    with_thaw, without = (images.Config(data=str(folder), epochs=3, thaw_epoch=epoch) for epoch in (2, None))
    assert [r["val_loss"] for r in trial(images, with_thaw)] == [r["val_loss"] for r in trial(images, without)]


def test_a_plateau_ends_the_trial(trial: Any, folder: Path) -> None:
    config = images.Config(data=str(folder), epochs=9, patience=1, lr=1e4)
    reports = trial(images, config)
    losses = [report["val_loss"] for report in reports]
    assert len(reports) < 9
    assert losses[-1] >= min(losses)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"freeze": "stem", "pretrained": False}, "freeze: 'stem', must be none for a network without pretrained"),
        ({"backbone": "torchvision:resnet18", "weights": str(images.SHAPES)}, "is not of ResNet"),
        ({"width": 8}, "is not of SmallResNet"),
        ({"weights": "/no/such/file.pt"}, "weights: /no/such/file.pt cannot be read"),
        ({"backbone": "resnet18"}, "allowed: torchvision:NAME, timm:NAME"),
        ({"data": "/no/such/folder"}, "is not a folder; allowed: a folder, npz:FILE, shapes5, shapes5_few"),
        ({"workers": 9}, "workers: 9, must be auto, or 0 to the CPUs of a trial (resources.cpu), 1"),
        ({"lr": 0.0, "side": 8}, "side: 8, must be at least 16 pixels; lr: 0.0, must be above 0"),
    ],
)
def test_what_cannot_be_is_found_before_a_trial(folder: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, DataUnavailable)) as caught:
        images.prepare(images.Config(**{"data": str(folder), **options}))
    assert text in str(caught.value)


def test_relative_paths_become_absolute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert images.prepare(images.Config(data=folder.name)) == {"data": str(folder)}


def test_missing_parts_are_taken_from_the_training_images_class_by_class(folder: Path) -> None:
    loaded = image_folders.load(str(folder), held_out=0.2)
    assert loaded.classes == ("disc", "square", "triangle")
    assert [len(part) for part in (loaded.train, loaded.val, loaded.test)] == [40, 30, 10]
    assert loaded.test.labels.bincount().tolist() == [4, 4, 2]
    assert not set(loaded.train.images) & set(loaded.test.images)
    flat = image_folders.load(str(folder / "train"), held_out=0.2)
    assert [len(part) for part in (flat.train, flat.val, flat.test)] == [32, 8, 10]


def test_a_hidden_folder_is_not_a_class(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "train", tmp_path, dirs_exist_ok=True)
    (tmp_path / ".ipynb_checkpoints").mkdir()
    assert image_folders.load(str(tmp_path)).classes == ("disc", "square", "triangle")


def test_fewer_images_of_each_class(folder: Path) -> None:
    loaded = image_folders.load(str(folder))
    assert loaded.train.first(12).labels.bincount().tolist() == [12, 12, 8]


def test_an_npz_file_is_a_data_set(small_npz: Path, tmp_path: Path) -> None:
    loaded = image_folders.load(f"npz:{small_npz}", str(tmp_path))
    assert [len(part) for part in (loaded.train, loaded.val, loaded.test)] == [204, 36, 60]
    image, label = loaded.train.as_tensors(side=16)[0]
    assert (image.shape, label) == ((3, 16, 16), int(loaded.train.labels[0]))


def test_generated_images_are_written_once(tmp_path: Path) -> None:
    loaded = image_folders.load("shapes5_few", str(tmp_path))
    assert [len(part) for part in (loaded.train, loaded.val, loaded.test)] == [150, 400, 1000]
    first = loaded.train.images[0].stat().st_mtime_ns
    assert image_folders.load("shapes5_few", str(tmp_path)).train.images[0].stat().st_mtime_ns == first


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (["train/cat/1.png", "train/dog/note.txt"], "class 'dog' without images"),
        (["train/cat/1.png"], "folders of classes in it: 1; two are the least"),
        (["val/cat/1.png"], "has val, and no train"),
        (["train/cat/1.png", "train/dog/1.png", "val/cat/1.png", "val/cow/1.png"], "differ in the classes cow, dog"),
        (["train/cat/1.png", "train/dog/1.png"], "class 'cat' has too few images to hold some out"),
    ],
)
def test_folders_that_are_no_data_set(tmp_path: Path, files: list[str], text: str) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16)).save(tmp_path / file) if file.endswith("png") else (tmp_path / file).touch()
    with pytest.raises(DataUnavailable) as caught:
        image_folders.load(str(tmp_path))
    assert text in str(caught.value)


def test_a_damaged_image_is_named(folder: Path, tmp_path: Path) -> None:
    for part in ("a", "b"):
        (tmp_path / part).mkdir()
        for number in range(3):
            (tmp_path / part / f"{number}.jpg").write_bytes(b"no image")
    loaded = image_folders.load(str(tmp_path))
    with pytest.raises(DataUnavailable, match=r"\.jpg: cannot be read as an image"):
        loaded.train[0]


def test_the_pretrained_weights_freeze_as_documented() -> None:
    model, head = images.build(images.Config(), classes=5)
    assert not any(name.startswith("head") for name in freeze(model, "all_but_head", head))
    assert images.SHAPES.stat().st_size < 400_000
