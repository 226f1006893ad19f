"""A Lightning module on scikit-learn's digits, in a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.integrations.digits import data
from tuner.integrations.lightning import FILE_NAME, Report, device_arguments, resume
from tuner.training.accumulation import accumulation


class Digits(LightningModule):
    def __init__(self, lr: float, dropout: float = 0.2) -> None:
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 10))

    def training_step(self, batch: Any, index: int) -> Tensor:
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        logits = self.net(batch[0])
        self.log("val_loss", F.cross_entropy(logits, batch[1]), sync_dist=True)
        self.log("val_accuracy", (logits.argmax(1) == batch[1]).float().mean(), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.3)]


def train(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    parts = accumulation(config.get("batch_size", 60), config.get("micro_batch"))
    training, validation = data()
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=config.get("epochs", 4),
        accumulate_grad_batches=parts.steps,
        precision=config.get("precision", "32-true"),
        callbacks=[Report(), *config.get("callbacks", ())],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **device_arguments(),
    )
    loader = DataLoader(training, parts.micro_batch, shuffle=True)
    trainer.fit(
        Digits(config["lr"], config.get("dropout", 0.2)), loader, DataLoader(validation, 300), ckpt_path=resume()
    )


def load_model(config: dict[str, Any], checkpoint: Path) -> nn.Module:
    return Digits.load_from_checkpoint(checkpoint / FILE_NAME, lr=config["lr"]).eval().net


def evaluate(config: dict[str, Any], checkpoint: Path) -> dict[str, float]:
    model = load_model(config, checkpoint)
    x, y = data()[1].tensors
    with torch.inference_mode():
        return {"test_accuracy": (model(x).argmax(1) == y).float().mean().item()}
