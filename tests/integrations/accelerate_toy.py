"""A loop with Accelerate on scikit-learn's digits, in a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.integrations.digits import data
from tuner.integrations.accelerate import report, resume
from tuner.training.accumulation import accumulation


def network(dropout: float = 0.2) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 10))


def train(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    training, (x, y) = data()[0], data()[1].tensors
    first = Accelerator(mixed_precision=config.get("precision", "no"))
    parts = accumulation(config.get("batch_size", 60), config.get("micro_batch"), first.num_processes)
    accelerator = Accelerator(
        gradient_accumulation_steps=parts.steps,
        mixed_precision=config.get("precision", "no"),
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=config.get("seedable", False)),
        project_config=ProjectConfiguration("project", automatic_checkpoint_naming=config.get("counted", False)),
    )
    model = network(config.get("dropout", 0.2))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.3)
    loader = DataLoader(training, parts.micro_batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.register_for_checkpointing(schedule)
    for epoch in range(resume(accelerator) + 1, config.get("epochs", 4) + 1):
        model.train()
        for images, labels in loader:
            with accelerator.accumulate(model):
                accelerator.backward(F.cross_entropy(model(images), labels))
                optimizer.step()
                optimizer.zero_grad()
        schedule.step()
        model.eval()
        with torch.inference_mode():
            logits = accelerator.unwrap_model(model)(x).float()
        loss, right = F.cross_entropy(logits, y), (logits.argmax(1) == y).float().mean()
        report(accelerator, {"epoch": epoch, "val_loss": loss, "val_accuracy": right})


def load_model(config: dict[str, Any], checkpoint: Path) -> nn.Module:
    model = network().eval()
    model.load_state_dict(load_file(checkpoint / "model.safetensors"))
    return model


def evaluate(config: dict[str, Any], checkpoint: Path) -> dict[str, float]:
    model = load_model(config, checkpoint)
    x, y = data()[1].tensors
    with torch.inference_mode():
        return {"test_accuracy": (model(x).argmax(1) == y).float().mean().item()}
