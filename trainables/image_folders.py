"""Images in folders, one folder a class, for `torch.utils.data`.

A data set is one of these:

    PATH         `PATH/train/CLASS/*.jpg`, and `val` and `test` beside `train`, if you have them; or `PATH/CLASS/*.jpg`.
                 Parts that are not there are taken from the training images.
    npz:FILE     arrays x_train, y_train, x_test, y_test, as `trainables.image_data` describes them
    shapes5      generated: every second class of `trainables.shapes10`, 2,000 images for training
    shapes5_few  generated: its other classes, 150 images for training

This module must not import Ray: the workers of a `DataLoader` import it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import v2

from trainables import image_data, shapes10
from tuner.training import keep
from tuner.training.data_errors import DataUnavailable
from tuner.training.fetching import fetched

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".gif")
PARTS = ("train", "val", "test")

GENERATED = {
    "shapes5": (tuple(range(0, 10, 2)), {"train": 400, "val": 80, "test": 200}),
    "shapes5_few": (tuple(range(1, 10, 2)), {"train": 30, "val": 80, "test": 200}),
}
"""The classes of each generated data set, by their numbers, and the images of a class in each part."""


_SCALE = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)])
IN_MEMORY = 2**28
"""Bytes of decoded images that a process keeps at most."""


class Split(Dataset[tuple[Any, int]]):
    """A part of a data set: files, or an array of images.

    Attributes:
        images: Paths of n files, or uint8 n x height x width x 3.
        labels: int64 n.
        transform: Makes of a `PIL.Image` in RGB what `[i]` gives; None for the image itself.
    """

    def __init__(self, images: Sequence[Path] | np.ndarray, labels: Tensor) -> None:
        self.images, self.labels = images, labels
        self.transform: Callable[[Image.Image], Any] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self.images[index]
        if isinstance(image, Path):
            try:
                picture = Image.open(image).convert("RGB")
            except (OSError, UnidentifiedImageError) as error:
                raise DataUnavailable(f"{image}: cannot be read as an image ({error}); remove it") from error
        else:
            picture = Image.fromarray(image)
        return (picture if self.transform is None else self.transform(picture)), int(self.labels[index])

    def transformed(self, transform: Callable[[Image.Image], Any]) -> Self:
        """The same images, each through ``transform``."""
        other = copy.copy(self)
        other.transform = transform
        return other

    def as_tensors(self, side: int, augment: bool = False) -> Split:
        """The same images as float 3 x side x side, about -2..2; if asked, shifted and mirrored at random."""
        if not augment and isinstance(self.images, np.ndarray) and self.images.shape[1:3] == (side, side):
            return _Scaled(self.images, self.labels)
        moves = [v2.RandomCrop(side, padding=side // 16, padding_mode="reflect"), v2.RandomHorizontalFlip()]
        return self.transformed(v2.Compose([v2.ToImage(), _resize(side), *(moves if augment else ()), _SCALE]))

    def resized(self, side: int) -> Self:
        """The same images, decoded, in memory: side x side x 3."""
        tensors = self.transformed(v2.Compose([v2.ToImage(), _resize(side)]))
        other = copy.copy(self)
        other.images = np.stack([tensors[index][0].permute(1, 2, 0).numpy() for index in range(len(self))])
        return other

    def subset(self, ids: Tensor) -> Split:
        """The images ``ids``."""
        images = self.images[ids.numpy()] if isinstance(self.images, np.ndarray) else [self.images[i] for i in ids]
        return Split(images, self.labels[ids])

    def first(self, count: int) -> Split:
        """The first ``count`` images of each class."""
        ids = [torch.nonzero(self.labels == label).flatten()[:count] for label in self.labels.unique()]
        return self.subset(torch.cat(ids).sort().values)


class _Scaled(Split):
    """Images in memory as float tensors, those of a batch at once: the very numbers that one by one gives."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, int]]:
        images = torch.from_numpy(np.asarray(self.images)[list(indices)]).permute(0, 3, 1, 2).contiguous()
        return list(zip(_SCALE(images), self.labels[list(indices)].tolist(), strict=True))


@dataclass(frozen=True)
class ImageFolders:
    """The names of the classes, in the order of their labels, and the three parts."""

    classes: tuple[str, ...]
    train: Split
    val: Split
    test: Split


def load(data: str, data_dir: str = "", held_out: float = 0.15, seed: int = 0) -> ImageFolders:
    """The data set that ``data`` names; of generated ones the first process of a node writes the files.

    ``held_out`` is the share of the training images, of each class, that takes the place of a missing part; ``seed``
    chooses these images. Raises `DataUnavailable` if the images cannot be read, a class has none, or the parts do not
    have the same classes.
    """
    kind, _, path = data.partition(":")
    if kind == "npz" and path:
        arrays = image_data.load(data, data_dir)
        train = Split(arrays.x_train, torch.from_numpy(arrays.y_train))
        test = Split(arrays.x_test, torch.from_numpy(arrays.y_test))
        names = tuple(map(str, range(arrays.classes)))
        train, val = _divided(train, held_out, seed, names)
        return ImageFolders(names, train, val, test)
    if data in GENERATED:
        folder = image_data.data_folder(data_dir).resolve() / f"{data}-jpeg-v{shapes10.VERSION}"
        fetched(folder, lambda empty: _generate(empty, data, data_dir))
    else:
        folder = Path(data).expanduser().resolve()
    return _read(folder, data, held_out, seed)


def kept(data: str, data_dir: str, side: int) -> ImageFolders:
    """As `load`, for a training: what is small stays decoded and resized in the process, for all its trials.

    A trial then sees the same images, and reads no file.
    """

    def read() -> ImageFolders:
        found = load(data, data_dir)
        if 3 * side**2 * (len(found.train) + len(found.val)) > IN_MEMORY:
            return found
        return ImageFolders(found.classes, found.train.resized(side), found.val.resized(side), found.test)

    return keep(("images", data, data_dir, side), read)


def prepare(data: str, data_dir: str = "") -> dict[str, object]:
    """Checks the data set; returns the parameters that hold relative paths, as absolute ones."""
    load(data, data_dir)
    changed: dict[str, object] = {}
    kind, _, path = data.partition(":")
    if data not in GENERATED:
        file = Path(path if kind == "npz" else data).expanduser().resolve()
        changed["data"] = f"npz:{file}" if kind == "npz" else str(file)
    if data_dir:
        changed["data_dir"] = str(Path(data_dir).expanduser().resolve())
    return changed


def _read(folder: Path, data: str, held_out: float, seed: int) -> ImageFolders:
    if not folder.is_dir():
        choices = ", ".join(("a folder", "npz:FILE", *GENERATED))
        raise DataUnavailable(f"data: {data!r}, but {folder} is not a folder; allowed: {choices}")
    present = [part for part in PARTS if (folder / part).is_dir()]
    if present and "train" not in present:
        raise DataUnavailable(f"{folder}: has {' and '.join(present)}, and no train; put the training images there")
    parts = {part: folder / part for part in present} or {"train": folder}
    classes = {part: _folders(place) for part, place in parts.items()}
    for part, own in classes.items():
        if len(own) < 2:
            raise DataUnavailable(f"{parts[part]}: folders of classes in it: {len(own)}; two are the least")
        if set(own) != set(classes["train"]):
            odd = sorted(set(own) ^ set(classes["train"]))
            raise DataUnavailable(f"{folder}: train and {part} differ in the classes {', '.join(odd)}")
    names = classes["train"]
    splits = {part: _split(parts[part], names) for part in parts}
    for number, part in enumerate(("test", "val")):
        if part not in splits:
            splits["train"], splits[part] = _divided(splits["train"], held_out, seed * 2 + number, names)
    return ImageFolders(names, **splits)


def _resize(side: int) -> v2.Resize:
    return v2.Resize((side, side), antialias=True)


def _folders(place: Path) -> tuple[str, ...]:
    """The folders in ``place``, but for hidden ones, such as those of notebooks."""
    return tuple(sorted(one.name for one in place.iterdir() if one.is_dir() and not one.name.startswith(".")))


def _split(folder: Path, classes: Sequence[str]) -> Split:
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        own = sorted(file for file in (folder / name).rglob("*") if file.suffix.lower() in SUFFIXES)
        if not own:
            raise DataUnavailable(f"{folder / name}: class {name!r} without images ({', '.join(SUFFIXES)})")
        files += own
        labels += [label] * len(own)
    return Split(files, torch.tensor(labels))


def _divided(split: Split, share: float, seed: int, classes: Sequence[str]) -> tuple[Split, Split]:
    """What stays of ``split``, and a ``share`` of the images of each class."""
    generator = torch.Generator().manual_seed(seed)
    kept, taken = [], []
    for label in split.labels.unique():
        ids = torch.nonzero(split.labels == label).flatten()
        if len(ids) < 2:
            raise DataUnavailable(f"class {classes[int(label)]!r} has too few images to hold some out for val and test")
        ids = ids[torch.randperm(len(ids), generator=generator)]
        count = max(1, round(share * len(ids)))
        taken.append(ids[:count])
        kept.append(ids[count:])
    return split.subset(torch.cat(kept).sort().values), split.subset(torch.cat(taken).sort().values)


def _generate(folder: Path, name: str, data_dir: str) -> None:
    """Writes a generated data set as JPEG files."""
    classes, counts = GENERATED[name]
    arrays = image_data.load("shapes10", data_dir)
    for label in classes:
        training = arrays.x_train[arrays.y_train == label]
        held_out = counts["train"] + counts["val"]
        parts = {
            "train": training[: counts["train"]],
            "val": training[counts["train"] : held_out],
            "test": arrays.x_test[arrays.y_test == label][: counts["test"]],
        }
        for part, images in parts.items():
            place = folder / part / shapes10.CLASSES[label]
            place.mkdir(parents=True)
            for number, image in enumerate(images):
                Image.fromarray(np.asarray(image)).save(place / f"{number:04}.jpg", quality=95)
