"""A training that tuner can search: handwritten digits, an epoch takes milliseconds. Replace the model and the data.

Search:       python -m tuner run search.yaml
Without Ray:  python -m tuner replay RUN TRIAL      one trial of a run again, in one process: breakpoint() works there
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from ray import tune
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    """All arguments of the training, with their defaults. tuner checks the experiment file against them."""

    lr: float = 0.01
    hidden: int = 64
    dropout: float = 0.1
    epochs: int = 9
    seed: int = 0


def train(config: Config) -> None:
    """One trial: trains one configuration, and reports after each epoch."""
    torch.manual_seed(config.seed)
    x, y = data("train")
    model = build(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    start = 0
    if (checkpoint := tune.get_checkpoint()) is not None:  # the trial continues: after Ctrl-C, a crash, or a pause
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder, "state.pt"), weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["rng"])
        start = saved["epoch"]

    for epoch in range(start + 1, config.epochs + 1):
        model.train()
        for batch in torch.randperm(len(x)).split(64):
            loss = F.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
        with tempfile.TemporaryDirectory() as folder:
            torch.save(state | {"epoch": epoch}, Path(folder, "state.pt"))
            # what the search compares ("val_accuracy", see search.yaml), and the checkpoint it belongs to
            tune.report({"epoch": epoch, **score(model, "val")}, checkpoint=tune.Checkpoint.from_directory(folder))


def evaluate(config: Config, checkpoint: Path, split: str = "test") -> dict[str, float]:
    """Scores a checkpoint: `python -m tuner best RUN --test` calls it. The test images take no part in the search."""
    model = build(config)
    model.load_state_dict(torch.load(checkpoint / "state.pt", weights_only=True)["model"])
    return score(model, split)


def build(config: Config) -> nn.Sequential:
    """The model, with new weights."""
    return nn.Sequential(
        nn.Linear(64, config.hidden), nn.ReLU(), nn.Dropout(config.dropout), nn.Linear(config.hidden, 10)
    )


def score(model: nn.Module, split: str) -> dict[str, float]:
    """Accuracy and loss on one split."""
    x, y = data(split)
    model.eval()
    with torch.no_grad():
        output = model(x)
    accuracy = (output.argmax(1) == y).float().mean().item()
    return {f"{split}_accuracy": accuracy, f"{split}_loss": F.cross_entropy(output, y).item()}


def data(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels of "train", "val" or "test"; the same for every trial."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    part = {"train": order[720:], "val": order[:360], "test": order[360:720]}[split]
    return torch.tensor(digits.data / 16, dtype=torch.float32)[part], torch.tensor(digits.target)[part]
