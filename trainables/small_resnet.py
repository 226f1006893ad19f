"""A residual network for small images: about 115,000 weights at width 16."""

from __future__ import annotations

from torch import Tensor, nn

HEAD = "head"
"""The name of the last layer."""


class SmallResNet(nn.Module):
    """Stem, two residual stages and a linear layer, after K. He et al., "Deep Residual Learning" (2015).

    Input: float N x 3 x height x width, of 16 pixels or more; output: logits N x ``classes``. Stem and
    stages have ``width``, 2x and 4x as many channels.
    """

    def __init__(self, classes: int, width: int = 16) -> None:
        super().__init__()
        self.stem = convolution(3, width, pool=True)
        self.stage1 = nn.Sequential(convolution(width, 2 * width, pool=True), Residual(2 * width))
        self.stage2 = nn.Sequential(convolution(2 * width, 4 * width, pool=True), Residual(4 * width))
        self.pool = nn.AdaptiveMaxPool2d(1)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        features = self.pool(self.stage2(self.stage1(self.stem(x)))).flatten(1)
        return self.head(features)


class Residual(nn.Module):
    """x + two convolutions of x."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(convolution(channels, channels), convolution(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def convolution(channels_in: int, channels_out: int, pool: bool = False) -> nn.Sequential:
    """3x3 convolution, batch norm, ReLU; pooling comes first if asked: a quarter of the work."""
    layers: list[nn.Module] = [nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)]
    if pool:
        layers.append(nn.MaxPool2d(2))
    # Momentum 0.2, twice PyTorch's: trials of a few hundred steps need young statistics.
    layers += [nn.BatchNorm2d(channels_out, momentum=0.2), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)
