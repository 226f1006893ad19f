"""Two small networks on 32x32 colour images: a residual one for CPUs, and a plain one for fast GPUs."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WHITENING_SIZE = 2  # pixels: side of the patches that the first layer of `Whitened` decorrelates
WHITENING_IMAGES = 5_000  # from which the covariance of the patches is taken


def convolution(channels_in: int, channels_out: int, pool: bool = False) -> nn.Sequential:
    """3x3 convolution, batch norm, SiLU; pooling comes first where asked: a quarter of the work."""
    layers: list[nn.Module] = [nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)]
    if pool:
        layers.append(nn.MaxPool2d(2))
    # Momentum 0.2, twice PyTorch's: trials of a few hundred steps need young statistics.
    layers += [nn.BatchNorm2d(channels_out, momentum=0.2), nn.SiLU(inplace=True)]
    return nn.Sequential(*layers)


class Residual(nn.Module):
    """x + two convolutions of x."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(convolution(channels, channels), convolution(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Head(nn.Module):
    """Largest value of each channel, then a linear layer with logits scaled by 1/8."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            # The compiled gradient of amax in bf16 is 0/0: it looks for the value, which was rounded meanwhile.
            return self.linear(F.max_pool2d(x, x.shape[2:]).flatten(1)) / 8
        return self.linear(x.amax((2, 3))) / 8  # divides the gradient between equal values: better in bf16


def resnet(width: int, classes: int) -> nn.Sequential:
    """ResNet-9's plan (D. Page's DAWNBench entry, 2018) without its full-resolution stage.

    Input: float N x 3 x 32 x 32, normalised; output: logits N x classes.
    """
    return nn.Sequential(
        convolution(3, width, pool=True),
        Residual(width),
        convolution(width, 2 * width, pool=True),
        convolution(2 * width, 4 * width, pool=True),
        Residual(4 * width),
        Head(4 * width, classes),
    )


class Whitened(nn.Module):
    """Six 3x3 convolutions behind a fixed first layer that decorrelates the pixels of a patch.

    The plan of airbench94 (K. Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU", 2024), whose first group
    has 64 channels. Input: float N x 3 x 32 x 32, normalised; output: logits N x classes.
    """

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        patch = 3 * WHITENING_SIZE**2
        self.whitening = nn.Conv2d(3, 2 * patch, WHITENING_SIZE)
        self.whitening.weight.requires_grad_(False)
        nn.init.zeros_(self.whitening.bias)  # type: ignore[arg-type]
        channels = [2 * patch, width, 4 * width, 4 * width]
        self.groups = nn.Sequential(*(_group(a, b) for a, b in pairwise(channels)))
        self.linear = nn.Linear(4 * width, classes, bias=False)
        with torch.no_grad():
            self.linear.weight.div_(self.linear.weight.std())

    def forward(self, x: Tensor) -> Tensor:
        x = self.groups(F.gelu(self.whitening(x)))
        return self.linear(F.max_pool2d(x, x.shape[2:]).flatten(1)) / self.linear.in_features

    @torch.no_grad()
    def whiten(self, images: Tensor) -> None:
        """Fits the first layer to normalised float images N x 3 x H x W: both signs of each principal direction."""
        patches = F.unfold(images, WHITENING_SIZE).transpose(1, 2).flatten(0, 1)
        covariance = (patches.T @ patches / len(patches)).double().cpu()
        variances, directions = torch.linalg.eigh(covariance)
        filters = (directions / (variances + 5e-4).sqrt()).T.flip(0).reshape(-1, 3, WHITENING_SIZE, WHITENING_SIZE)
        self.whitening.weight.copy_(torch.cat([filters, -filters]))


def _group(channels_in: int, channels_out: int) -> nn.Sequential:
    """Two convolutions that begin as the identity; a quarter of the pixels remains."""
    layers: list[nn.Module] = []
    for number, channels in enumerate((channels_in, channels_out)):
        kernel = nn.Conv2d(channels, channels_out, 3, padding=1, bias=False)
        nn.init.dirac_(kernel.weight.data[:channels])
        norm = nn.BatchNorm2d(channels_out, momentum=0.4)
        norm.weight.requires_grad_(False)
        layers += [kernel] + ([] if number else [nn.MaxPool2d(2)]) + [norm, nn.GELU()]
    return nn.Sequential(*layers)
