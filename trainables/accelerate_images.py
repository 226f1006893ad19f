"""A training loop of your own with Accelerate, on a folder of images. Copy it, and replace the network and the data.

Through tuner:          python -m tuner run experiments/accelerate_images.yaml      (needs the extra "accelerate")
Through plain Ray Tune: python -m trainables.accelerate_images

`resume` before the epochs and `report` after each are all that a search adds to a loop with Accelerate.
"""

import dataclasses
from pathlib import Path
from typing import Literal

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from ray import tune
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from trainables import image_folders
from trainables.small_resnet import SmallResNet
from tuner.integrations.accelerate import report, resume
from tuner.training.accumulation import accumulation


@dataclasses.dataclass
class Config:
    """Every argument of the training, with its default."""

    data: str = "shapes5"  # a folder of images, npz:FILE, or generated: see trainables/image_folders.py
    data_dir: str = ""  # where generated images are kept; "" is $TUNER_DATA, else ~/.cache/tuner
    side: int = 32  # images are resized to side x side pixels
    epochs: int = 9
    batch_size: int = 50  # over all processes of the trial
    micro_batch: int | None = None  # images that go through the network at once; None: the whole batch
    lr: float = 1e-2  # falls to 0 in a half cosine
    weight_decay: float = 1e-2
    label_smoothing: float = 0.0
    width: int = 16  # channels of the stem; the stages have 2x and 4x as many
    precision: Literal["no", "bf16", "fp16"] = "no"  # as in Accelerator(mixed_precision=...)
    seed: int = 0


def train(config: Config) -> None:
    """Trains one configuration; reports val_accuracy and val_loss after each epoch, with a checkpoint."""
    if isinstance(config, dict):
        config = Config(**config)
    set_seed(config.seed)
    accelerator = Accelerator(mixed_precision=config.precision)
    parts = accumulation(config.batch_size, config.micro_batch, accelerator.num_processes)
    accelerator.gradient_accumulation_steps = parts.steps
    images = image_folders.kept(config.data, config.data_dir, config.side)
    training = DataLoader(images.train.as_tensors(config.side, augment=True), parts.micro_batch, shuffle=True)
    validation = DataLoader(images.val.as_tensors(config.side), 250)
    model = SmallResNet(len(images.classes), config.width)
    optimizer = torch.optim.AdamW(model.parameters(), config.lr, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.epochs)
    model, optimizer, training, validation = accelerator.prepare(model, optimizer, training, validation)
    accelerator.register_for_checkpointing(schedule)

    for epoch in range(resume(accelerator) + 1, config.epochs + 1):
        model.train()
        for x, y in training:
            with accelerator.accumulate(model):
                accelerator.backward(F.cross_entropy(model(x), y, label_smoothing=config.label_smoothing))
                optimizer.step()
                optimizer.zero_grad()
        schedule.step()
        report(accelerator, {"epoch": epoch, **score(accelerator, model, validation, "val")})


def evaluate(config: Config, checkpoint: Path, split: str = "test") -> dict[str, float]:
    """Accuracy (0..1) and cross-entropy (nats) of a checkpoint on "val" or "test"."""
    if isinstance(config, dict):
        config = Config(**config)
    accelerator = Accelerator(mixed_precision=config.precision)
    part = getattr(image_folders.load(config.data, config.data_dir), split)
    images = DataLoader(part.as_tensors(config.side), 250)
    model, images = accelerator.prepare(load_model(config, checkpoint), images)
    return score(accelerator, model, images, split)


def load_model(config: Config, checkpoint: Path) -> nn.Module:
    """The model in a checkpoint directory."""
    if isinstance(config, dict):
        config = Config(**config)
    model = SmallResNet(len(image_folders.load(config.data, config.data_dir).classes), config.width)
    model.load_state_dict(load_file(checkpoint / "model.safetensors"))
    return model.eval()


def prepare(config: Config) -> dict[str, object]:
    """Runs once, before any trial: checks the images, or generates them."""
    return image_folders.prepare(config.data, config.data_dir)


@torch.inference_mode()
def score(accelerator: Accelerator, model: nn.Module, images: DataLoader, name: str) -> dict[str, float]:
    """Accuracy and mean cross-entropy, over all processes."""
    model.eval()
    batches = [accelerator.gather_for_metrics((model(x).float(), y)) for x, y in images]
    logits, labels = (torch.cat(part) for part in zip(*batches, strict=True))
    right = (logits.argmax(1) == labels).float().mean().item()
    return {f"{name}_accuracy": right, f"{name}_loss": F.cross_entropy(logits, labels).item()}


if __name__ == "__main__":
    space = {"lr": tune.loguniform(1e-3, 1e-1), "epochs": 3}
    results = tune.Tuner(train, param_space=space, tune_config=tune.TuneConfig(num_samples=4)).fit()
    print(results.get_best_result("val_accuracy", "max").metrics)
