"""Classes for LightningCLI on scikit-learn's digits, of which a trial may be killed as it reports."""

from __future__ import annotations

from pathlib import Path

CONFIG = """
seed_everything: 7
trainer:
  max_epochs: 4
  accelerator: cpu
  enable_progress_bar: false
  enable_model_summary: false
  enable_checkpointing: false
  logger: false
model:
  class_path: digits.Digits
  init_args:
    width: 16
data:
  class_path: digits.Data
"""

MODULE = """
import os
import signal
from pathlib import Path

import lightning
import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Digits(lightning.LightningModule):
    def __init__(self, width: int, lr: float = 0.01, dropout: float = 0.2, kill: str | None = None):
        super().__init__()
        self.save_hyperparameters()
        self.lr, self.kill = lr, kill
        layers = [torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Dropout(dropout), torch.nn.Linear(width, 10)]
        self.net = torch.nn.Sequential(*layers)

    def training_step(self, batch, index):
        if self.kill and self.current_epoch == 2 and not Path(self.kill).exists():
            Path(self.kill).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self.log("val_loss", F.cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)

    def test_step(self, batch, index):
        self.log("test_accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class Untested(Digits):
    test_step = lightning.LightningModule.test_step


class Data(lightning.LightningDataModule):
    def __init__(self, batch_size: int = 60):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
        self.parts = [TensorDataset(x[a:b].float() / 16, y[a:b]) for a, b in ((0, 600), (600, 900), (900, 1200))]

    def train_dataloader(self):
        return DataLoader(self.parts[0], self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.parts[1], 300)

    def test_dataloader(self):
        return DataLoader(self.parts[2], 300)
"""


def write_project(folder: Path) -> None:
    """Writes digits.py and config.yaml."""
    (folder / "digits.py").write_text(MODULE)
    (folder / "config.yaml").write_text(CONFIG)
