"""A small residual network on 32x32 colour images: CIFAR-10, your own .npz, or generated shapes.

Through tuner:          python -m tuner run experiments/cifar_asha.yaml
Through plain Ray Tune: python -m trainables.cifar            (see the end of this file)

Fast by construction: the images stay uint8, are read once (memory-mapped, so that all trials of a
node share one copy; on a GPU one copy a process, which its trials share), and are cropped, flipped
and normalised there in whole batches. Nothing is handed to Python during an epoch. See
`fastest_precision` for bf16.
"""

import dataclasses
import math
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import torch
from ray import tune
from torch import Tensor, nn
from torch.nn import functional as F

from trainables import image_data
from trainables.image_batches import augment, draw_moves, normalise, split_ids
from tuner.training import checkpointing, keep
from tuner.training.device import device_name, fastest_device, fastest_precision

EVAL_BATCH = 500  # fixed, so that evaluate() repeats the very numbers that train() reported


@dataclasses.dataclass
class Config:
    """Every argument of the training, with its default."""

    dataset: str = "cifar10"  # cifar10, shapes10 or npz:PATH
    offline_dataset: str | None = None  # what prepare() may use where `dataset` cannot be had
    data_dir: str = ""  # where data sets are kept; "" is $TUNER_DATA, else ~/.cache/tuner
    epochs: int = 10  # the one-cycle schedule spans exactly these
    batch_size: int = 128
    micro_batch: int | None = None  # images on the device at once; None: the batch. Batch norm sees these only
    lr: float = 0.3  # peak learning rate of the one-cycle schedule
    optimizer: Literal["sgd", "adamw", "adam"] = "sgd"
    momentum: float = 0.9  # Nesterov momentum; used by sgd only
    weight_decay: float = 5e-4  # on convolution and linear weights, not on biases and norms
    label_smoothing: float = 0.1
    width: int = 32  # channels of the first stage; the later ones have 2x and 4x as many
    pct_start: float = 0.3  # share of all steps in which the learning rate rises
    crop_padding: int = 2  # random crop: shift by up to this many pixels, mirrored at the border
    flip: bool = True  # mirror every second image (at random) left to right
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    seed: int = 0  # initial weights, order of images, augmentation
    val_fraction: float = 0.1  # share of the training images held out for validation
    split_seed: int = 0  # chooses the held-out images: the same for every trial of a run


def train(config: Config) -> None:
    """Train one configuration; one report (with a checkpoint) an epoch.

    Reported: epoch (from 1), val_accuracy and val_loss (on the held-out images), train_loss
    (with augmentation and label smoothing), lr (of the epoch's last step), images_per_second
    (training only), device, precision. Raises `ValueError` for an impossible configuration and
    `image_data.DataUnavailable` where the data cannot be had.
    """
    if isinstance(config, dict):
        config = Config(**config)
    check(config)
    device = fastest_device()
    precision = fastest_precision(device, config.precision)
    x, y, classes = keep(("cifar", config.dataset, config.data_dir, str(device)), lambda: _training(config, device))
    train_ids, val_ids = split_ids(len(x), config.val_fraction, config.split_seed)
    steps = len(train_ids) // config.batch_size
    if steps == 0:
        raise ValueError(f"batch_size: {config.batch_size}, but only {len(train_ids)} images")

    torch.manual_seed(config.seed)
    model = build(config, classes).to(device, memory_format=torch.channels_last)
    optimizer = build_optimizer(config, model)
    schedule = OneCycle(optimizer, config.lr, config.epochs * steps, config.pct_start)
    order = torch.Generator().manual_seed(config.seed)  # order of the images and augmentation
    state = {"model": model, "optimizer": optimizer, "schedule": schedule}
    state["generators"] = {"order": order}

    finished = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as directory:
            finished = checkpointing.restore(directory, **state)

    for epoch in range(finished + 1, config.epochs + 1):
        started = time.perf_counter()
        model.train()
        # Drawn on the CPU, so that order and augmentation are the same on every device.
        ids = train_ids[torch.randperm(len(train_ids), generator=order)].to(device)
        moves = draw_moves(len(ids), config.crop_padding, config.flip, order).to(device)
        total = torch.zeros((), device=device)
        for step in range(steps):
            optimizer.zero_grad(set_to_none=True)
            lr = schedule.set_next()
            for part in pieces(step, config.batch_size, config.micro_batch):
                batch = normalise(augment(x, ids[part], moves[part]))
                with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
                    logits = model(batch)
                loss = F.cross_entropy(logits.float(), y[ids[part]], label_smoothing=config.label_smoothing)
                loss = loss * ((part.stop - part.start) / config.batch_size)
                loss.backward()  # gradients add up to those of the batch's mean
                total += loss.detach()
            optimizer.step()
        train_loss = total.item() / steps  # waits for the device, so the time below is whole
        seconds = time.perf_counter() - started
        accuracy, val_loss = score(model, x, y, val_ids.to(device), precision)
        metrics = {
            "epoch": epoch,
            "val_accuracy": accuracy,
            "val_loss": val_loss,
            "train_loss": train_loss,
            "lr": lr,
            "images_per_second": steps * config.batch_size / seconds,
            "device": device_name(device),
            "precision": f"{precision} channels_last",
        }
        with tempfile.TemporaryDirectory() as directory:
            checkpointing.save(directory, epoch=epoch, metrics=metrics, **state)
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


def evaluate(config: Config, checkpoint: Path, split: str = "test") -> dict[str, float]:
    """Accuracy (0..1) and mean cross-entropy (nats) of a checkpoint directory on "val" or "test".

    On the device that trained it, "val" repeats what train() reported for this checkpoint.
    """
    if isinstance(config, dict):
        config = Config(**config)
    if split not in ("val", "test"):
        raise ValueError(f"split: {split!r}; allowed: val, test")
    check(config)
    device = fastest_device()
    images = image_data.load(config.dataset, config.data_dir)
    model = load_model(config, checkpoint).to(device)
    if split == "test":
        x, y = _on_device(images.x_test, images.y_test, device)
        ids = torch.arange(len(x))
    else:
        x, y = _on_device(images.x_train, images.y_train, device)
        ids = split_ids(len(x), config.val_fraction, config.split_seed)[1]
    precision = fastest_precision(device, config.precision)
    accuracy, loss = score(model, x, y, ids.to(device), precision)
    return {f"{split}_accuracy": accuracy, f"{split}_loss": loss}


def load_model(config: Config, checkpoint: Path) -> nn.Module:
    """The model in a checkpoint directory, on the CPU, in channels-last layout and evaluation mode."""
    if isinstance(config, dict):
        config = Config(**config)
    check(config)
    classes = image_data.load(config.dataset, config.data_dir).classes
    model = build(config, classes).to(memory_format=torch.channels_last)
    model.load_state_dict(checkpointing.read(checkpoint)["model"])
    return model.eval()


def prepare(config: Config) -> dict[str, object]:
    """Check the configuration and fetch the data; returns what replaces every trial's parameters.

    Runs once, before any trial. See `image_data.prepare` for the fall-back and the errors.
    """
    if isinstance(config, dict):
        config = Config(**config)
    check(config)
    return image_data.prepare(config.dataset, config.offline_dataset, config.data_dir)


def checkpoint_bytes(config: Config) -> int:
    """Estimated size of one checkpoint in bytes (for ten classes); allocates no weights."""
    if isinstance(config, dict):
        config = Config(**config)
    check(config)
    with torch.device("meta"):
        model = build(config, classes=10)
    return checkpointing.size_in_bytes(model, config.optimizer)


def check(config: Config) -> None:
    """Raise one `ValueError` that names every impossible value."""
    rules = {
        "epochs": (config.epochs >= 1, "at least 1"),
        "batch_size": (config.batch_size >= 2, "at least 2"),
        "micro_batch": (config.micro_batch is None or config.micro_batch >= 1, "at least 1, or None"),
        "width": (config.width >= 1, "at least 1"),
        "lr": (0 < config.lr < math.inf, "above 0"),
        "optimizer": (config.optimizer in ("sgd", "adamw", "adam"), "sgd, adamw or adam"),
        "momentum": (0 <= config.momentum < 1, "in [0, 1)"),
        "weight_decay": (0 <= config.weight_decay < math.inf, "0 or more"),
        "label_smoothing": (0 <= config.label_smoothing < 1, "in [0, 1)"),
        "pct_start": (0 <= config.pct_start <= 1, "in [0, 1]"),
        "crop_padding": (0 <= config.crop_padding <= 16, "from 0 to 16 pixels"),
        "precision": (config.precision in ("auto", "fp32", "bf16"), "auto, fp32 or bf16"),
        "val_fraction": (0 < config.val_fraction < 1, "between 0 and 1"),
    }
    wrong = [f"{name}: {getattr(config, name)!r}, must be {rule}" for name, (ok, rule) in rules.items() if not ok]
    if wrong:
        raise ValueError("; ".join(wrong))


# ---------------------------------------------------------------------------------- the network


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
        return self.linear(x.amax((2, 3))) / 8


def convolution(channels_in: int, channels_out: int, pool: bool = False) -> nn.Sequential:
    """3x3 convolution, batch norm, SiLU; pooling comes first where asked: a quarter of the work."""
    layers: list[nn.Module] = [nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)]
    if pool:
        layers.append(nn.MaxPool2d(2))
    # Momentum 0.2, twice PyTorch's: trials of a few hundred steps need young statistics.
    layers += [nn.BatchNorm2d(channels_out, momentum=0.2), nn.SiLU(inplace=True)]
    return nn.Sequential(*layers)


def build(config: Config, classes: int) -> nn.Sequential:
    """ResNet-9's plan (D. Page's DAWNBench entry, 2018) without its full-resolution stage.

    Input: float N x 3 x 32 x 32, normalised; output: logits N x classes.
    """
    w = config.width
    return nn.Sequential(
        convolution(3, w, pool=True),
        Residual(w),
        convolution(w, 2 * w, pool=True),
        convolution(2 * w, 4 * w, pool=True),
        Residual(4 * w),
        Head(4 * w, classes),
    )


# ------------------------------------------------------------------------ optimizer and schedule


def build_optimizer(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    """The chosen optimizer; weight decay acts on matrices and kernels only."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1]},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    common: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay, "fused": True}
    if config.optimizer == "sgd":
        momentum = config.momentum
        return torch.optim.SGD(groups, momentum=momentum, nesterov=momentum > 0, **common)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, betas=(0.9, 0.99), **common)


class OneCycle:
    """Learning rate linear from peak/5 up to the peak, then linear down to peak/100.

    A function of the step's number alone; L. Smith and N. Topin, "Super-convergence" (2018).
    """

    def __init__(self, optimizer: torch.optim.Optimizer, peak: float, steps: int, pct_start: float) -> None:
        self.optimizer, self.peak, self.steps = optimizer, peak, steps
        self.rise = pct_start * steps
        self.done = 0

    def set_next(self) -> float:
        """Set and return the learning rate of the step that is about to be taken."""
        if self.done < self.rise:
            factor = 0.2 + 0.8 * self.done / self.rise
        else:
            factor = 1 - 0.99 * (self.done - self.rise) / max(1.0, self.steps - 1 - self.rise)
        self.done += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.peak * max(factor, 0.01)
        return self.peak * max(factor, 0.01)

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done = int(state["done"])


# --------------------------------------------------------------------------------------- scoring


@torch.inference_mode()
def score(model: nn.Module, x: Tensor, y: Tensor, ids: Tensor, precision: str) -> tuple[float, float]:
    """Accuracy (0..1) and mean cross-entropy (nats) on the images `ids`, not augmented."""
    model.eval()
    totals = torch.zeros(2, device=x.device)
    for part in ids.split(EVAL_BATCH):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
            logits = model(normalise(x[part]))
        loss = F.cross_entropy(logits.float(), y[part], reduction="sum")
        totals += torch.stack([(logits.argmax(1) == y[part]).sum(), loss])
    right, loss_sum = totals.tolist()
    return right / len(ids), loss_sum / len(ids)


def pieces(step: int, batch_size: int, micro_batch: int | None) -> list[slice]:
    """Where the images of a step lie, `micro_batch` at a time (the last may be fewer)."""
    first, end = step * batch_size, (step + 1) * batch_size
    return [slice(k, min(k + (micro_batch or batch_size), end)) for k in range(first, end, micro_batch or batch_size)]


def _training(config: Config, device: torch.device) -> tuple[Tensor, Tensor, int]:
    """Training images and labels on the device, and the number of classes."""
    images = image_data.load(config.dataset, config.data_dir)
    return *_on_device(images.x_train, images.y_train, device), images.classes


def _on_device(x: Any, y: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """Memory-mapped arrays as tensors; on a CPU these are the map itself, without a copy."""
    return torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)


if __name__ == "__main__":
    space = {"lr": tune.loguniform(1e-2, 2.0), "dataset": "shapes10", "epochs": 3, "width": 16}
    prepare(Config(dataset="shapes10"))
    results = tune.Tuner(train, param_space=space, tune_config=tune.TuneConfig(num_samples=4)).fit()
    print(results.get_best_result("val_accuracy", "max").metrics)
