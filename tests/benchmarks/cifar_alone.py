"""A stand-alone training of the airbench class on CIFAR-10, against which a trial of `trainables.cifar` is timed.

    python tests/benchmarks/cifar_alone.py FILE.npz [--runs 5] [--epochs 8]

The recipe is that of airbench94 with Muon (K. Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU", 2024, and
his speed runs after it), written down here without any of tuner: half precision, one compiled network, no reports, no
checkpoints. 45,000 images train (the same ones as in a trial), and the test images are seen once at the end. Each run
prints its seconds, from the reset of the weights to the end of the last step, and its accuracy; the first one compiles.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

BATCH, BIAS_LR, HEAD_LR, MUON_LR, DECAY = 2000, 0.053, 0.67, 0.24, 4e-3
GRAY, SPREAD = 120.7, 64.2  # grey level and its standard deviation


class Norm(nn.BatchNorm2d):
    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-12, momentum=0.4)
        self.weight.requires_grad_(False)


class Group(nn.Module):
    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(a, b, 3, padding=1, bias=False), nn.Conv2d(b, b, 3, padding=1, bias=False)
        self.norm_one, self.norm_two = Norm(b), Norm(b)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.norm_one(F.max_pool2d(self.one(x), 2)))
        return F.gelu(self.norm_two(self.two(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whiten = nn.Conv2d(3, 24, 2)
        self.groups = nn.Sequential(Group(24, 64), Group(64, 256), Group(256, 256))
        self.head = nn.Linear(256, 10, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.groups(F.gelu(self.whiten(x)))
        return self.head(F.max_pool2d(x, 3).flatten(1)) / 256

    @torch.no_grad()
    def reset(self, images: torch.Tensor) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm2d)):
                module.reset_parameters()
            if isinstance(module, nn.Conv2d) and module.bias is None:
                nn.init.dirac_(module.weight[: module.in_channels])
        self.head.weight.div_(self.head.weight.float().std())
        patches = F.unfold(images.float(), 2).transpose(1, 2).flatten(0, 1)
        values, vectors = torch.linalg.eigh((patches.T @ patches / len(patches)).double())
        filters = (vectors / (values + 5e-4).sqrt()).T.reshape(12, 3, 2, 2)
        self.whiten.weight.copy_(torch.cat([filters, -filters]))
        self.whiten.bias.zero_()


def newton_schulz(matrix: torch.Tensor) -> torch.Tensor:
    x = matrix.bfloat16()
    x = x / (x.norm() + 1e-7)
    tall = len(x) > x.shape[1]
    x = x.T if tall else x
    for _ in range(3):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


def crops(images: torch.Tensor) -> torch.Tensor:
    """Each image of N x 3 x 36 x 36 cut to 32 x 32 at a place of its own."""
    out = torch.empty(len(images), 3, 32, 32, device=images.device, dtype=images.dtype)
    places = torch.randint(0, 5, (len(images), 2), device=images.device)
    for down in range(5):
        for right in range(5):
            here = (places[:, 0] == down) & (places[:, 1] == right)
            out[here] = images[here, :, down : down + 32, right : right + 32]
    return out


def trained(net: Net, compiled: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int) -> None:
    net.reset(x[:5000])
    net.train()
    net.whiten.bias.requires_grad_(True)
    kernels = [p for p in net.parameters() if p.requires_grad and p.ndim == 4]
    biases = [p for p in net.parameters() if p.requires_grad and p.ndim == 1]
    rates = [(biases, BIAS_LR), ([net.head.weight], HEAD_LR)]
    sgd = torch.optim.SGD(
        [{"params": params, "lr": lr, "weight_decay": DECAY / lr, "peak": lr} for params, lr in rates],
        momentum=0.85,
        nesterov=True,
        fused=True,
    )
    momenta = [torch.zeros_like(p) for p in kernels]
    wider = F.pad(x, (2, 2, 2, 2), mode="reflect")
    mirrored = torch.rand(len(x), device=x.device) < 0.5
    steps, step = epochs * (len(x) // BATCH), 0
    for epoch in range(epochs):
        if epoch == 3:
            net.whiten.bias.requires_grad_(False)
        images = crops(wider)
        flips = mirrored ^ bool(epoch % 2)
        images = torch.where(flips[:, None, None, None], images.flip(3), images).contiguous(
            memory_format=torch.channels_last
        )
        for ids in torch.randperm(len(x), device=x.device).split(BATCH):
            if len(ids) < BATCH:
                continue
            share = 1 - step / steps
            for group in sgd.param_groups:
                group["lr"] = group["peak"] * share
            net.zero_grad(set_to_none=True)
            loss = F.cross_entropy(compiled(images[ids]), y[ids], label_smoothing=0.2, reduction="sum")
            loss.backward()
            sgd.step()
            with torch.no_grad():
                for p, momentum in zip(kernels, momenta, strict=True):
                    momentum.mul_(0.6).add_(p.grad)
                    p.mul_(len(p) ** 0.5 / p.norm())
                    move = newton_schulz(p.grad.add(momentum, alpha=0.6).flatten(1))
                    p.add_(move.view_as(p), alpha=-MUON_LR * share)
            step += 1


@torch.inference_mode()
def accuracy(net: Net, x: torch.Tensor, y: torch.Tensor) -> float:
    net.eval()
    right = 0
    for part in torch.arange(len(x), device=x.device).split(2000):
        plain, wider = x[part], F.pad(x[part], (1, 1, 1, 1), mode="reflect")
        shifted = [wider[:, :, 2:, 2:], wider[:, :, :-2, :-2]]
        mean = 0.5 * sum(net(view) for view in (plain, plain.flip(3)))
        mean = mean + 0.25 * sum(net(view) for one in shifted for view in (one, one.flip(3)))
        right += int((mean.argmax(1) == y[part]).sum())
    return right / len(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="arrays x_train, y_train, x_test, y_test")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=8)
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    arrays = np.load(given.file)

    def images(name: str) -> torch.Tensor:
        return ((torch.from_numpy(arrays[name]).cuda().float() - GRAY) / SPREAD).permute(0, 3, 1, 2).half()

    def labels(name: str) -> torch.Tensor:
        return torch.from_numpy(arrays[name]).long().cuda()

    x, y, x_test, y_test = images("x_train"), labels("y_train"), images("x_test"), labels("y_test")
    kept = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[len(x) // 10 :].sort().values.cuda()
    x, y = x[kept], y[kept]
    net = Net().cuda().half().to(memory_format=torch.channels_last)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.float()
    compiled = torch.compile(net, dynamic=False)
    for run in range(given.runs + 1):
        torch.manual_seed(run)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        trained(net, compiled, x, y, given.epochs)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begun
        print(f"{'compiled' if run == 0 else run} {seconds:.3f} {accuracy(net, x_test, y_test):.4f}", flush=True)


if __name__ == "__main__":
    main()
