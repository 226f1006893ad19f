"""Whole batches of augmented images, gathered straight from a uint8 data set on its device."""

import torch
from torch import Tensor
from torch.nn import functional as F

# Of CIFAR-10's pixels, in grey levels 0..255. One pair for all three colours: as plain numbers they
# cost a GPU no transfer a step, and batch norm evens out the rest.
MEAN, STD = 120.7, 64.2


def split_ids(n: int, val_fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices of the training and of the held-out images among `n`, in sorted order."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    held_out = max(1, round(n * val_fraction))
    return order[held_out:].sort().values, order[:held_out].sort().values


def draw_moves(n: int, reach: int, flip: bool, generator: torch.Generator) -> Tensor:
    """Augmentation of `n` images: int64 n x 3 of rows down, columns right, and mirror (0 or 1).

    Shifts are at most `reach` pixels; `flip` mirrors half of the images.
    """
    shifts = torch.randint(-reach, reach + 1, (n, 2), generator=generator)
    mirror = torch.randint(0, 2, (n, 1), generator=generator)
    return torch.cat([shifts, mirror * flip], dim=1)


def alternate_flips(n: int, epoch: int, seed: int) -> Tensor:
    """Mirror (0 or 1) of `n` images in an epoch: a random half in the first, the other half in the next, in turn.

    So each image is seen from both sides in two epochs (K. Jordan, "94% on CIFAR-10 in 3.29 seconds", 2024).
    """
    first = torch.randint(0, 2, (n,), generator=torch.Generator().manual_seed(seed))
    return (first + epoch) % 2


def views(images: Tensor, count: int) -> list[tuple[float, Tensor]]:
    """Views of normalised images N x 3 x H x W, each with its weight (together 1).

    1: as they are; 2: their mirror images too; 6: both also shifted by a pixel, up and left or down and right.
    """
    places = [(1.0, images)]
    if count == 6:
        wider = F.pad(images, (1, 1, 1, 1), mode="reflect")
        places = [(0.5, images), (0.25, wider[:, :, 2:, 2:]), (0.25, wider[:, :, :-2, :-2])]
    if count == 1:
        return places
    return [(weight / 2, view) for weight, place in places for view in (place, place.flip(3))]


def augment(images: Tensor, ids: Tensor, moves: Tensor) -> Tensor:
    """Images `ids` of uint8 N x H x W x 3, shifted and mirrored as `moves` says; same layout.

    One gather straight from the data set. Pixels from beyond the border are mirrored ones.
    """
    rows = _mirrored(torch.arange(images.shape[1], device=ids.device) + moves[:, :1])
    columns = _mirrored(torch.arange(images.shape[2], device=ids.device) + moves[:, 1:2])
    columns = torch.where(moves[:, 2:] == 1, columns.flip(1), columns)
    return images[ids[:, None, None], rows[:, :, None], columns[:, None, :]]


def _mirrored(positions: Tensor) -> Tensor:
    """Positions -k..n-1+k of a row of n brought into 0..n-1 by reflection at its ends."""
    last = positions.shape[1] - 1
    return last - (last - positions.abs()).abs()


def normalise(images: Tensor) -> Tensor:
    """uint8 N x H x W x 3 to float N x 3 x H x W, which is channels_last without a copy."""
    return images.float().sub_(MEAN).div_(STD).permute(0, 3, 1, 2)
