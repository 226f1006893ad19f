"""A small network on 32x32 colour images: CIFAR-10, your own .npz, or generated shapes.

Through tuner:          python -m tuner run experiments/cifar_asha.yaml
Through plain Ray Tune: python -m trainables.cifar            (see the end of this file)

Fast by construction: the images stay uint8, are read once (memory-mapped, so that all trials of a
node share one copy; on a GPU one copy a process, which its trials share), and are cropped, flipped
and normalised there in whole batches. Nothing is handed to Python during an epoch. See
`fastest_precision` for bf16. experiments/cifar_gpu.yaml has the values for a fast GPU.
"""

import contextlib
import dataclasses
import math
import time
from pathlib import Path
from typing import Any, Literal

import torch
from ray import tune
from torch import Tensor, nn
from torch.nn import functional as F

from trainables import image_data
from trainables.image_batches import alternate_flips, augment, draw_moves, normalise, split_ids, views
from trainables.image_networks import WHITENING_IMAGES, Whitened, resnet
from trainables.image_optimizers import Muon, OneCycle
from tuner.training import checkpointing, keep
from tuner.training.background_saving import BackgroundSaver
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
    optimizer: Literal["sgd", "adamw", "adam", "muon"] = "sgd"
    momentum: float = 0.9  # Nesterov momentum; used by sgd and muon
    weight_decay: float = 5e-4  # on convolution and linear weights; muon: the share of the others that a step removes
    bias_lr: float = 0.4  # muon only: peak learning rate of the biases, for each channel of the last stage
    head_lr: float = 5.0  # muon only: that of the last layer, likewise
    label_smoothing: float = 0.1
    network: Literal["resnet", "whitened"] = "resnet"
    width: int = 32  # channels of the first stage; the later ones have up to 4x as many
    pct_start: float = 0.3  # share of all steps in which the learning rate rises
    crop_padding: int = 2  # random crop: shift by up to this many pixels, mirrored at the border
    flip: bool = True  # mirror half of the images left to right
    alternate: bool = False  # mirror in each epoch those images that were not mirrored in the one before
    views: Literal[1, 2, 6] = 1  # in scoring: the image; its mirror image too; both shifted by a pixel, too
    compile: bool = False  # the network by torch.compile, and cuDNN's kernels by trial: worth its start on a GPU
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    report_every: int = 1  # epochs between two reports; the last epoch is always reported
    seed: int = 0  # initial weights, order of images, augmentation
    val_fraction: float = 0.1  # share of the training images held out for validation
    split_seed: int = 0  # chooses the held-out images: the same for every trial of a run


def train(config: Config) -> None:
    """Train one configuration; one report (with a checkpoint) every `report_every` epochs.

    Reported: epoch (from 1), val_accuracy and val_loss (on the held-out images), train_loss
    (of the last epoch, with augmentation and label smoothing), lr (of the epoch's last step), images_per_second
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
    if isinstance(model, Whitened):
        model.whiten(normalise(x[train_ids[:WHITENING_IMAGES].to(device)]))
    optimizer = build_optimizer(config, model)
    schedule = OneCycle(optimizer, config.epochs * steps, config.pct_start)
    order = torch.Generator().manual_seed(config.seed)  # order of the images and augmentation
    state = {"model": model, "optimizer": optimizer, "schedule": schedule}
    state["generators"] = {"order": order}
    logits_of = keep("cifar compiled", lambda: torch.compile(_logits, dynamic=False)) if config.compile else _logits

    finished = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as directory:
            finished = checkpointing.restore(directory, **state)

    with BackgroundSaver() as saver:
        for epoch in range(finished + 1, config.epochs + 1):
            started = time.perf_counter()
            model.train()
            if isinstance(model, Whitened) and epoch > 3 / 8 * config.epochs:
                model.whitening.bias.requires_grad_(False)  # type: ignore[union-attr]  # ends the way back one layer earlier
            # Drawn on the CPU, so that order and augmentation are the same on every device.
            shuffled = torch.randperm(len(train_ids), generator=order)
            moves = draw_moves(len(shuffled), config.crop_padding, config.flip, order)
            if config.flip and config.alternate:
                moves[:, 2] = alternate_flips(len(train_ids), epoch, config.seed)[shuffled]
            ids, moves = train_ids[shuffled].to(device), moves.to(device)
            total = torch.zeros((), device=device)
            for step in range(steps):
                optimizer.zero_grad(set_to_none=True)
                lr = schedule.set_next()
                for part in pieces(step, config.batch_size, config.micro_batch):
                    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"), kernels(config):
                        logits = logits_of(model, x, ids[part], moves[part])
                        loss = F.cross_entropy(logits.float(), y[ids[part]], label_smoothing=config.label_smoothing)
                        loss = loss * ((part.stop - part.start) / config.batch_size)
                        loss.backward()  # gradients add up to those of the batch's mean
                    total += loss.detach()
                optimizer.step()
            if epoch % config.report_every and epoch < config.epochs:
                continue
            train_loss = total.item() / steps  # waits for the device, so the time below is whole
            seconds = time.perf_counter() - started
            accuracy, val_loss = score(model, x, y, val_ids.to(device), precision, config.views)
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
            saver.report(metrics, epoch=epoch, **state)


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
    accuracy, loss = score(model, x, y, ids.to(device), precision, config.views)
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
    return checkpointing.size_in_bytes(model, "sgd" if config.optimizer == "muon" else config.optimizer)


def check(config: Config) -> None:
    """Raise one `ValueError` that names every impossible value."""
    rules = {
        "epochs": (config.epochs >= 1, "at least 1"),
        "batch_size": (config.batch_size >= 2, "at least 2"),
        "micro_batch": (config.micro_batch is None or config.micro_batch >= 1, "at least 1, or None"),
        "width": (config.width >= 1, "at least 1"),
        "lr": (0 < config.lr < math.inf, "above 0"),
        "optimizer": (
            config.optimizer in ("sgd", "adamw", "adam") or (config.optimizer, config.network) == ("muon", "whitened"),
            "sgd, adamw or adam, or muon for network whitened",  # whose biases bear large steps
        ),
        "network": (config.network in ("resnet", "whitened"), "resnet or whitened"),
        "momentum": (0 <= config.momentum < 1, "in [0, 1)"),
        "weight_decay": (0 <= config.weight_decay < math.inf, "0 or more"),
        "bias_lr": (0 < config.bias_lr < math.inf, "above 0"),
        "head_lr": (0 < config.head_lr < math.inf, "above 0"),
        "label_smoothing": (0 <= config.label_smoothing < 1, "in [0, 1)"),
        "pct_start": (0 <= config.pct_start <= 1, "in [0, 1]"),
        "crop_padding": (0 <= config.crop_padding <= 16, "from 0 to 16 pixels"),
        "views": (config.views in (1, 2, 6), "1, 2 or 6"),
        "report_every": (config.report_every >= 1, "at least 1"),
        "precision": (config.precision in ("auto", "fp32", "bf16"), "auto, fp32 or bf16"),
        "val_fraction": (0 < config.val_fraction < 1, "between 0 and 1"),
    }
    wrong = [f"{name}: {getattr(config, name)!r}, must be {rule}" for name, (ok, rule) in rules.items() if not ok]
    if wrong:
        raise ValueError("; ".join(wrong))


def build(config: Config, classes: int) -> nn.Module:
    """The network, on the CPU. Input: float N x 3 x 32 x 32, normalised; output: logits N x classes."""
    return Whitened(config.width, classes) if config.network == "whitened" else resnet(config.width, classes)


def build_optimizer(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    """The chosen optimizer; weight decay acts on matrices and kernels only, with muon on all that it does not scale."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if config.optimizer == "muon":
        channels = 4 * config.width  # the logits are their mean, so that the gradients are smaller the more there are
        rates = {1: config.bias_lr * channels, 2: config.head_lr * channels}
        rest = [
            {"params": [p for p in trained if p.ndim == ndim], "lr": lr, "weight_decay": config.weight_decay / lr}
            for ndim, lr in rates.items()
        ]
        return Muon([p for p in trained if p.ndim > 2], rest, config.lr, config.momentum)
    groups = [
        {"params": [p for p in trained if p.ndim > 1]},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    common: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay, "fused": True}
    if config.optimizer == "sgd":
        momentum = config.momentum
        return torch.optim.SGD(groups, momentum=momentum, nesterov=momentum > 0, **common)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, betas=(0.9, 0.99), **common)


def kernels(config: Config) -> contextlib.AbstractContextManager[None]:
    """Within: cuDNN tries its kernels for each new shape, if the configuration asks for that."""
    return torch.backends.cudnn.flags(benchmark=True) if config.compile else contextlib.nullcontext()


def _logits(model: nn.Module, images: Tensor, ids: Tensor, moves: Tensor) -> Tensor:
    """Of the images `ids`, moved; one function, so that all of it is compiled together."""
    return model(normalise(augment(images, ids, moves)))  # type: ignore[no-any-return]


@torch.inference_mode()
def score(model: nn.Module, x: Tensor, y: Tensor, ids: Tensor, precision: str, count: int = 1) -> tuple[float, float]:
    """Accuracy (0..1) and mean cross-entropy (nats) on the images `ids`, by the mean of `count` views."""
    model.eval()
    totals = torch.zeros(2, device=x.device)
    for part in ids.split(EVAL_BATCH):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
            logits = sum(weight * model(view) for weight, view in views(normalise(x[part]), count))
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
