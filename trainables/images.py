"""Images in classes: your own folder, a pretrained network, and everything that `tuner.training` offers as a choice.

Through tuner:          python -m tuner run experiments/images.yaml
Through plain Ray Tune: python -m trainables.images

The backbone is "small" (`trainables.small_resnet`), "torchvision:NAME" or "timm:NAME", which needs the extra "timm".
It starts from scratch, or from pretrained weights: a file of yours, or those that the library publishes. Those of the
small one lie beside this file. `scripts/pretrain` made them of five of the generated classes; the data set shapes5_few
has the other five.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal

import torch
from ray import tune
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from trainables import image_folders, small_resnet
from tuner.training import checkpointing
from tuner.training.accumulation import accumulation
from tuner.training.backbones import backbone, load_weights
from tuner.training.background_saving import BackgroundSaver
from tuner.training.device import fastest_device
from tuner.training.early_stop import PlateauStop
from tuner.training.loading import Loader, loader
from tuner.training.metrics import balanced_accuracy, macro_f1
from tuner.training.precision import Precision
from tuner.training.regularization import Ema, mix_batch, penalty
from tuner.training.sampling import make_sampler
from tuner.training.schedules import make_schedule
from tuner.training.transfer import TrainableOnly, freeze, layerwise_groups, thaw
from tuner.training.trial_cpus import trial_cpus

SHAPES = Path(__file__).with_name("shapes.safetensors")
EVAL_BATCH = 250  # fixed, so that evaluate() repeats the very numbers that train() reported


@dataclasses.dataclass
class Config:
    """Every argument of the training, with its default."""

    data: str = "shapes5_few"  # a folder of images, npz:FILE, or generated: see trainables/image_folders.py
    data_dir: str = ""  # where generated images are kept; "" is $TUNER_DATA, else ~/.cache/tuner
    side: int = 32  # images are resized to side x side pixels
    per_class: int | None = None  # training images of each class; None: all
    workers: int | Literal["auto"] = "auto"  # processes that load images; auto: measured on a GPU, none on a CPU
    # the network
    backbone: str = "small"  # or torchvision:NAME, timm:NAME
    pretrained: bool = True  # starts from pretrained weights, not from scratch
    weights: str | None = None  # the file with these; None: those of the library, or of the small one
    width: int = 16  # channels of the stem of the small one
    freeze: Literal["none", "stem", "all_but_head"] = "none"  # what does not train
    thaw_epoch: int | None = None  # from this epoch on everything trains; None: never
    # the optimization
    epochs: int = 9
    batch_size: int = 25
    micro_batch: int | None = None  # images that go through the network at once; None: the whole batch
    lr: float = 3e-3  # of the last layer, at the peak of the schedule
    layer_decay: float = 1.0  # the factor from a layer's learning rate to that of the layer before it
    schedule: Literal["constant", "step", "cosine", "one_cycle", "plateau"] = "cosine"
    warmup: float = 0.0  # share of the steps
    max_norm: float | None = None  # gradients are clipped to this norm
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"
    # against overfitting
    weight_decay: float = 1e-2  # on matrices and kernels only, as l1 and l2
    l1: float = 0.0
    l2: float = 0.0
    label_smoothing: float = 0.0
    mix: Literal["none", "mixup", "cutmix"] = "none"
    mix_alpha: float = 0.2
    augment: bool = True  # shifts and mirrors
    ema: float | None = None  # decay of averaged weights, which are then scored and kept
    sampler: Literal["uniform", "balanced", "weighted"] = "uniform"  # for classes that are not equally frequent
    patience: int | None = None  # epochs without a better val_loss that end the trial
    seed: int = 0


def train(config: Config) -> None:
    """Trains one configuration; one report, with a checkpoint, an epoch.

    Reported: epoch (from 1), val_accuracy, val_balanced_accuracy and val_macro_f1 (means over the classes), val_loss,
    train_loss, lr. Raises `ValueError` for an impossible configuration, `DataUnavailable` for data or weights.
    """
    if isinstance(config, dict):
        config = Config(**config)
    check(config)
    device = fastest_device()
    images = image_folders.kept(config.data, config.data_dir, config.side)
    training = images.train if config.per_class is None else images.train.first(config.per_class)
    steps = math.ceil(len(training) / config.batch_size)
    parts = accumulation(config.batch_size, config.micro_batch)
    model, head = build(config, len(images.classes))
    model.to(device)
    saved = _saved()
    epoch = 0 if saved is None else int(saved["epoch"])
    state = training_state(config, model, head, steps, max(epoch, 1), device)
    if saved is not None:
        checkpointing.restore(saved, **state)
    validation = DataLoader(images.val.as_tensors(config.side), EVAL_BATCH)
    stop = state["others"].get("stop")
    with batches_of(config, training, device) as batches, BackgroundSaver() as saver:
        while epoch < config.epochs:
            epoch += 1
            if epoch == thaw_epoch(config) > 1:  # a new optimizer, and a schedule for the epochs that are left
                state = training_state(config, model, head, steps, epoch, device, stop)
            batches.set_epoch(epoch)
            train_loss = train_epoch(config, model, batches, state, parts.micro_batch)
            ema: Ema | None = state["others"].get("ema")
            scores = score(model if ema is None else ema, validation, state["scaler"], len(images.classes), "val")
            state["schedule"].evaluated(scores["val_loss"])
            lr = max(group["lr"] for group in state["optimizer"].param_groups)
            metrics = {"epoch": epoch, **scores, "train_loss": train_loss, "lr": lr}
            ends = stop is not None and stop.update(scores["val_loss"])
            saver.report(metrics, epoch=epoch, **state)
            if ends:
                break


def train_epoch(config: Config, model: nn.Module, batches: Loader, state: dict[str, Any], micro_batch: int) -> float:
    """One pass over the images; the mean loss of a batch."""
    training_mode(model)
    precision, optimizer, ema = state["scaler"], state["optimizer"], state["others"].get("ema")
    total = torch.zeros((), device=precision.device)
    for images, labels in batches:
        x, y = images.to(precision.device, non_blocking=True), labels.to(precision.device, non_blocking=True)
        mixed = mix_batch(x, y, config.mix, config.mix_alpha, state["generators"]["mix"])
        optimizer.zero_grad(set_to_none=True)
        for part in torch.arange(len(x)).split(micro_batch):
            share = len(part) / len(x)  # gradients add up to those of the batch's mean
            with precision.autocast():
                logits = model(mixed.x[part]).float()
            first, second = (
                F.cross_entropy(logits, target[part], label_smoothing=config.label_smoothing)
                for target in (mixed.first, mixed.second)
            )
            loss = share * (mixed.weight * first + (1 - mixed.weight) * second + penalty(model, config.l1, config.l2))
            precision.backward(loss)
            total += loss.detach()
        precision.step(optimizer, model, config.max_norm)
        state["schedule"].step()
        if ema is not None:
            ema.update()
    return total.item() / len(batches)


def evaluate(config: Config, checkpoint: Path, split: str = "test") -> dict[str, float]:
    """The scores of a checkpoint directory on "val" or "test", under the names that train() reports."""
    if isinstance(config, dict):
        config = Config(**config)
    if split not in ("val", "test"):
        raise ValueError(f"split: {split!r}; allowed: val, test")
    images = image_folders.load(config.data, config.data_dir)
    device = fastest_device()
    model = load_model(config, checkpoint).to(device)
    batches = DataLoader(getattr(images, split).as_tensors(config.side), EVAL_BATCH)
    return score(model, batches, Precision(config.precision, device), len(images.classes), split)


def load_model(config: Config, checkpoint: Path) -> nn.Module:
    """The model in a checkpoint directory, on the CPU; the averaged one, if the training averaged."""
    if isinstance(config, dict):
        config = Config(**config)
    model, head = build(config, len(image_folders.load(config.data, config.data_dir).classes))
    saved = checkpointing.read(checkpoint)
    if int(saved["epoch"]) < thaw_epoch(config):
        freeze(model, config.freeze, head)
    TrainableOnly(model).load_state_dict(saved["model"])
    if config.ema is not None:
        ema = Ema(model, config.ema)
        ema.load_state_dict(saved["others"]["ema"])
        model.load_state_dict(ema.averaged.state_dict())
    return model.eval()


def prepare(config: Config) -> dict[str, object]:
    """Runs once, before any trial: checks configuration, images and weights, and fetches them."""
    if isinstance(config, dict):
        config = Config(**config)
    check(config)
    changed = image_folders.prepare(config.data, config.data_dir)
    pretrained = config.pretrained or config.weights is not None  # another trial may be the one that starts from them
    classes = image_folders.load(config.data, config.data_dir).classes
    model, head = build(dataclasses.replace(config, pretrained=pretrained), len(classes))
    freeze(model, config.freeze, head)
    if config.weights is not None:
        changed["weights"] = str(Path(config.weights).expanduser().resolve())
    return changed


def check(config: Config) -> None:
    """Raises one `ValueError` that names every impossible value; the kit checks names, and what the device can do."""
    rules = {
        "epochs": (config.epochs >= 1, "at least 1"),
        "side": (config.side >= 16, "at least 16 pixels"),
        "per_class": (config.per_class is None or config.per_class >= 1, "at least 1, or None"),
        "batch_size": (config.batch_size >= 1, "at least 1"),
        "micro_batch": (config.micro_batch is None or config.micro_batch >= 1, "at least 1, or None"),
        "lr": (0 < config.lr < math.inf, "above 0"),
        "layer_decay": (0 < config.layer_decay <= 1, "above 0, and at most 1"),
        "warmup": (0 <= config.warmup < 1, "in [0, 1)"),
        "max_norm": (config.max_norm is None or config.max_norm > 0, "above 0, or None"),
        **{name: (0 <= getattr(config, name) < math.inf, "0 or more") for name in ("weight_decay", "l1", "l2")},
        "mix_alpha": (0 < config.mix_alpha < math.inf, "above 0"),
        "ema": (config.ema is None or 0 <= config.ema < 1, "in [0, 1), or None"),
        "patience": (config.patience is None or config.patience >= 1, "at least 1, or None"),
        "label_smoothing": (0 <= config.label_smoothing < 1, "in [0, 1)"),
        "thaw_epoch": (config.thaw_epoch is None or config.thaw_epoch >= 2, "at least 2, or None"),
        "workers": (
            config.workers == "auto" or 0 <= config.workers <= trial_cpus(),
            f"auto, or 0 to the CPUs of a trial (resources.cpu), {trial_cpus():g}",
        ),
        "freeze": (config.freeze == "none" or config.pretrained, "none for a network without pretrained weights"),
    }
    wrong = [f"{name}: {getattr(config, name)!r}, must be {rule}" for name, (ok, rule) in rules.items() if not ok]
    if wrong:
        raise ValueError("; ".join(wrong))


# --------------------------------------------------------------------------------- the parts of a training


def build(config: Config, classes: int) -> tuple[nn.Module, str]:
    """The network and the name of its last layer; what is not pretrained follows from the seed."""
    torch.manual_seed(config.seed)
    if config.backbone != "small":
        return backbone(config.backbone, classes, (config.weights or "hub") if config.pretrained else None)
    model = small_resnet.SmallResNet(classes, config.width)
    if config.pretrained:
        load_weights(model, config.weights or SHAPES, small_resnet.HEAD)
    return model, small_resnet.HEAD


def thaw_epoch(config: Config) -> int:
    """The epoch from which on everything trains: 1 if nothing is frozen, and one after the last if it stays frozen."""
    return 1 if config.freeze == "none" else config.thaw_epoch or config.epochs + 1


def training_state(
    config: Config,
    model: nn.Module,
    head: str,
    steps: int,
    epoch: int,
    device: torch.device,
    stop: PlateauStop | None = None,
) -> dict[str, Any]:
    """Everything with a state, as `checkpointing.save` takes it, for the phase of ``epoch``: frozen or not."""
    thaw(model)
    begin = thaw_epoch(config)
    if epoch < begin:
        freeze(model, config.freeze, head)
    epochs = min(begin - 1, config.epochs) if epoch < begin else config.epochs - begin + 1
    groups: list[dict[str, Any]] = []
    for group in layerwise_groups(model, config.lr, config.layer_decay):
        for is_kernel, decay in ((True, config.weight_decay), (False, 0.0)):
            parameters = [p for p in group["params"] if (p.ndim > 1) is is_kernel]
            groups.append({**group, "params": parameters, "weight_decay": decay})
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]])
    others: dict[str, Any] = {} if config.ema is None else {"ema": Ema(model, config.ema)}
    if config.patience is not None:
        others["stop"] = stop or PlateauStop(config.patience)
    return {
        "model": TrainableOnly(model),
        "optimizer": optimizer,
        "schedule": make_schedule(config.schedule, optimizer, epochs * steps, warmup=config.warmup),
        "scaler": Precision(config.precision, device),
        "generators": {"mix": torch.Generator().manual_seed(config.seed)},
        "others": others,
    }


def batches_of(config: Config, images: image_folders.Split, device: torch.device) -> Loader:
    """The training images in batches; on a CPU the training leaves nothing for worker processes to run on."""
    workers = 0 if config.workers == "auto" and device.type == "cpu" else config.workers
    return loader(
        images.as_tensors(config.side, config.augment),
        config.batch_size,
        cpus=trial_cpus(),
        num_workers=workers,
        seed=config.seed,
        sampler=make_sampler(images.labels, config.sampler, generator=torch.Generator()),
        name=config.data,
    )


def training_mode(model: nn.Module) -> None:
    """Training mode; modules in which nothing trains keep their statistics, too."""
    model.train()
    for module in model.modules():
        parameters = list(module.parameters())
        if parameters and not any(p.requires_grad for p in parameters):
            module.eval()


@torch.inference_mode()
def score(
    model: nn.Module | Ema, batches: DataLoader, precision: Precision, classes: int, name: str
) -> dict[str, float]:
    """Accuracy, balanced accuracy, macro F1 (all 0..1) and mean cross-entropy (nats)."""
    if isinstance(model, Ema):
        with model.applied() as averaged:
            return score(averaged, batches, precision, classes, name)
    model.eval()
    with precision.autocast():
        outputs = [(model(x.to(precision.device)).float().cpu(), y) for x, y in batches]
    logits, labels = (torch.cat(part) for part in zip(*outputs, strict=True))
    chosen: Tensor = logits.argmax(1)
    return {
        f"{name}_accuracy": (chosen == labels).float().mean().item(),
        f"{name}_balanced_accuracy": balanced_accuracy(chosen, labels, classes),
        f"{name}_macro_f1": macro_f1(chosen, labels, classes),
        f"{name}_loss": F.cross_entropy(logits, labels).item(),
    }


def _saved() -> dict[str, Any] | None:
    """What the checkpoint holds that the trial continues from; None if it begins."""
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as directory:
        return checkpointing.read(directory)


if __name__ == "__main__":
    space = {"lr": tune.loguniform(1e-4, 1e-1), "epochs": 3, "schedule": tune.choice(["constant", "cosine"])}
    results = tune.Tuner(train, param_space=space, tune_config=tune.TuneConfig(num_samples=4)).fit()
    print(results.get_best_result("val_accuracy", "max").metrics)
