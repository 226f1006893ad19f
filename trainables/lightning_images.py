"""A Lightning module on a folder of images. Copy it, and replace the network and the data.

Through tuner:          python -m tuner run experiments/lightning_images.yaml      (needs the extra "lightning")
Through plain Ray Tune: python -m trainables.lightning_images

`Report` in the callbacks and `resume` in `fit` are all that a search adds to a Lightning training.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning
import torch
from ray import tune
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader

from trainables import image_folders
from trainables.small_resnet import SmallResNet
from tuner.integrations.lightning import FILE_NAME, Report, device_arguments, resume
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
    lr: float = 3e-3  # peak of a one-cycle schedule
    weight_decay: float = 1e-2
    label_smoothing: float = 0.0
    width: int = 16  # channels of the stem; the stages have 2x and 4x as many
    precision: str = "32-true"  # as in lightning.Trainer
    seed: int = 0


class Classifier(lightning.LightningModule):
    """The network, its loss and its metrics."""

    def __init__(self, config: Config, classes: int) -> None:
        super().__init__()
        self.config = config
        self.net = SmallResNet(classes, config.width)

    def training_step(self, batch: Any, index: int) -> Tensor:
        return F.cross_entropy(self.net(batch[0]), batch[1], label_smoothing=self.config.label_smoothing)

    def validation_step(self, batch: Any, index: int, part: str = "val") -> None:
        logits = self.net(batch[0])
        right = (logits.argmax(1) == batch[1]).float().mean()
        metrics = {f"{part}_loss": F.cross_entropy(logits, batch[1]), f"{part}_accuracy": right}
        self.log_dict(metrics, batch_size=len(batch[1]), sync_dist=True)

    def test_step(self, batch: Any, index: int) -> None:
        self.validation_step(batch, index, "test")

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), self.config.lr, weight_decay=self.config.weight_decay)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.config.lr, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def train(config: Config) -> None:
    """Trains one configuration; reports val_accuracy and val_loss after each epoch, with a checkpoint."""
    if isinstance(config, dict):
        config = Config(**config)
    lightning.seed_everything(config.seed, verbose=False)
    images = image_folders.kept(config.data, config.data_dir, config.side)
    trainer = trainer_of(config, callbacks=[Report()])
    parts = accumulation(config.batch_size, config.micro_batch, trainer.world_size)
    trainer.accumulate_grad_batches = parts.steps
    training = DataLoader(images.train.as_tensors(config.side, augment=True), parts.micro_batch, shuffle=True)
    validation = DataLoader(images.val.as_tensors(config.side), 250)
    trainer.fit(Classifier(config, len(images.classes)), training, validation, ckpt_path=resume())


def evaluate(config: Config, checkpoint: Path, split: str = "test") -> dict[str, float]:
    """Accuracy (0..1) and cross-entropy (nats) of a checkpoint on "val" or "test"."""
    if isinstance(config, dict):
        config = Config(**config)
    images = image_folders.load(config.data, config.data_dir)
    part = DataLoader(getattr(images, split).as_tensors(config.side), 250)
    trainer = trainer_of(config)
    score = trainer.test if split == "test" else trainer.validate
    return dict(*score(load_model(config, checkpoint), part, verbose=False))


def load_model(config: Config, checkpoint: Path) -> Classifier:
    """The module in a checkpoint directory."""
    if isinstance(config, dict):
        config = Config(**config)
    classes = len(image_folders.load(config.data, config.data_dir).classes)
    return Classifier.load_from_checkpoint(checkpoint / FILE_NAME, config=config, classes=classes).eval()


def prepare(config: Config) -> dict[str, object]:
    """Runs once, before any trial: checks the images, or generates them."""
    return image_folders.prepare(config.data, config.data_dir)


def trainer_of(config: Config, callbacks: Sequence[lightning.Callback] = ()) -> lightning.Trainer:
    """A Trainer for the devices of the trial; the search records the metrics."""
    silent = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    own = {"max_epochs": config.epochs, "precision": config.precision, "callbacks": list(callbacks)}
    return lightning.Trainer(**own, **silent, **device_arguments())


if __name__ == "__main__":
    space = {"lr": tune.loguniform(1e-3, 1e-1), "epochs": 3}
    results = tune.Tuner(train, param_space=space, tune_config=tune.TuneConfig(num_samples=4)).fit()
    print(results.get_best_result("val_accuracy", "max").metrics)
