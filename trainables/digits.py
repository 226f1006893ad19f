"""A small network on scikit-learn's 1,797 handwritten digits (8x8): an epoch takes milliseconds.

Through tuner:          python -m tuner run experiments/quickstart.yaml
Through plain Ray Tune: python -m trainables.digits           (see the end of this file)

Real data that ships with scikit-learn: nothing is downloaded. The work horse of first steps and
of tests. `train_many` trains several configurations of one shape as one model.
"""

import dataclasses
import functools
import math
import tempfile
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from ray import tune
from torch import Tensor, nn
from torch.nn import functional as F

from tuner.training import checkpointing, distributed, stacked

TEST_SIZE, VAL_SIZE = 360, 360  # of the 1,797 images; the rest, 1,077, is for training


@dataclasses.dataclass
class Config:
    """Every argument of the training, with its default."""

    epochs: int = 30
    lr: float = 0.1  # constant; good values for adam are near 0.003
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.9  # used by sgd only
    hidden: int = 64  # width of the one hidden layer
    dropout: float = 0.1
    weight_decay: float = 1e-4
    batch_size: int = 64
    micro_batch: int | None = None  # images that go through the network at once; None: the whole batch
    seed: int = 0  # initial weights, order of images, dropout
    split_seed: int = 0  # chooses the held-out images: the same for every trial of a run


def train(config: Config) -> None:
    """Train one configuration; one report (with a checkpoint) an epoch.

    Reported: epoch (from 1), val_accuracy, val_loss, train_loss (with dropout). Raises
    `ValueError` for an impossible configuration.
    """
    if isinstance(config, dict):
        config = Config(**config)
    check(config)
    with distributed.group() as group:
        _train(config, group)


def _train(config: Config, group: distributed.Group) -> None:
    data = {name: (x.to(group.device), y.to(group.device)) for name, (x, y) in load(config.split_seed).items()}
    x, y = data["train"]
    torch.manual_seed(config.seed)  # initial weights and dropout
    model = build(config).to(group.device)
    optimizer = build_optimizer(config, model)
    order = torch.Generator().manual_seed(config.seed)
    state = {"model": model, "optimizer": optimizer, "generators": {"order": order}}

    saved = group.from_first(_saved)
    finished = checkpointing.restore(saved, **state) if saved else 0
    trained = group.model(model)
    for epoch in range(finished + 1, config.epochs + 1):
        model.train()
        group.seed(config.seed, epoch)
        total = torch.zeros((), device=group.device)
        for batch in torch.randperm(len(x), generator=order).split(config.batch_size):
            optimizer.zero_grad(set_to_none=True)
            part, weight = group.share(batch)
            for piece in part.split(config.micro_batch or config.batch_size):
                loss = F.cross_entropy(trained(x[piece]), y[piece]) * (weight * len(piece) / len(part))
                loss.backward()  # gradients add up to those of the batch's mean
                total += loss.detach() * len(batch)
            optimizer.step()
        total = group.mean(total)
        if not group.is_first:
            continue
        accuracy, val_loss = score(model, *data["val"])
        metrics = {
            "epoch": epoch,
            "val_accuracy": accuracy,
            "val_loss": val_loss,
            "train_loss": total.item() / len(x),
        }
        with tempfile.TemporaryDirectory() as directory:
            checkpointing.save(directory, epoch=epoch, metrics=metrics, durable=False, **state)
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


def _saved() -> dict[str, Any] | None:
    """What the checkpoint holds that the trial continues from; None where it begins."""
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as directory:
        return checkpointing.read(directory)


def shape(config: Config | dict[str, Any]) -> Hashable:
    """What must be equal in configurations that `train_many` trains as one."""
    if isinstance(config, dict):
        config = Config(**config)
    return (config.hidden, config.optimizer, config.batch_size, config.micro_batch, config.split_seed)


def train_many(
    configs: Sequence[Config], report: Callable[..., bool], checkpoints: Sequence[Path | None] | None = None
) -> None:
    """Train configurations of one `shape` as one model, on the CPU; each gets the numbers that `train` gives it.

    `report(number, metrics, save)` takes a report of configuration `number`, and says whether that one continues;
    `save(folder)` writes its checkpoint. One that has reached its epochs leaves. `checkpoints`: the folders from which
    they continue. Raises `ValueError` if the shapes differ, or the epochs after which they continue.
    """
    shapes = {shape(config) for config in configs}
    if len(shapes) > 1:
        names = "hidden, optimizer, batch_size, micro_batch and split_seed"
        raise ValueError(
            f"configurations that train as one have the same {names}; these have {sorted(shapes, key=str)}"
        )
    members = [_Member(number, config) for number, config in enumerate(configs)]
    folders = checkpoints or [None] * len(members)
    finished = [member.restore(folder) if folder else 0 for member, folder in zip(members, folders, strict=True)]
    if len(set(finished)) > 1:
        raise ValueError(f"configurations that train as one continue after the same epoch; these after {finished}")
    members = [member for member, epoch in zip(members, finished, strict=True) if epoch < member.config.epochs]
    if not members:
        return
    data = load(configs[0].split_seed)
    x, y = data["train"]
    both = stacked.Stacked([m.model for m in members], [m.optimizer for m in members])

    def logits(x: Tensor, training: bool) -> Tensor:
        hidden = stacked.linear(x, both["0.weight"], both["0.bias"]).relu()
        if training:
            hidden = stacked.dropout(hidden, [m.config.dropout for m in members], [m.noise for m in members])
        return stacked.linear(hidden, both["3.weight"], both["3.bias"])

    for epoch in range(finished[0] + 1, max(config.epochs for config in configs) + 1):
        total = torch.zeros(len(members))
        orders = torch.stack([torch.randperm(len(x), generator=m.order) for m in members])
        for batch in orders.split(configs[0].batch_size, dim=1):
            # in parts, as `train` does, so that dropout draws the same numbers
            parts = batch.split(configs[0].micro_batch or configs[0].batch_size, dim=1)
            losses = [stacked.cross_entropy(logits(F.embedding(p, x), True), y[p]) * p.shape[1] for p in parts]
            loss = sum(losses[1:], losses[0])
            both.step(loss / batch.shape[1])
            total += loss.detach()
        with torch.inference_mode():
            found = logits(data["val"][0].expand(len(members), -1, -1), False)
            val_loss = stacked.cross_entropy(found, data["val"][1])
            accuracy = (found.argmax(2) == data["val"][1]).float().mean(1)
        both.write_back()
        going = []
        for place, member in enumerate(members):
            metrics = {
                "epoch": epoch,
                "val_accuracy": accuracy[place].item(),
                "val_loss": val_loss[place].item(),
                "train_loss": total[place].item() / len(x),
            }
            continues = report(member.number, metrics, functools.partial(member.save, epoch, metrics))
            if continues and epoch < member.config.epochs:
                going.append(place)
        if not going:
            return
        if len(going) < len(members):
            both.keep(going)
            members = [members[place] for place in going]


class _Member:
    """One of the configurations that train as one: its model, its optimizer, its random numbers."""

    def __init__(self, number: int, config: Config) -> None:
        check(config)
        self.number, self.config = number, config
        torch.manual_seed(config.seed)
        self.model = build(config)
        self.optimizer = build_optimizer(config, self.model)
        self.noise = torch.Generator()  # of dropout: continues where the initial weights ended, as torch's own does
        self.noise.set_state(torch.get_rng_state())
        self.order = torch.Generator().manual_seed(config.seed)

    def save(self, epoch: int, metrics: dict[str, Any], directory: str) -> None:
        torch.set_rng_state(self.noise.get_state())
        state: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer, "generators": {"order": self.order}}
        checkpointing.save(directory, epoch=epoch, metrics=metrics, durable=False, **state)

    def restore(self, folder: Path) -> int:
        state: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer, "generators": {"order": self.order}}
        finished = checkpointing.restore(folder, **state)
        self.noise.set_state(torch.get_rng_state())
        return finished


def evaluate(config: Config, checkpoint: Path, split: str = "test") -> dict[str, float]:
    """Accuracy (0..1) and cross-entropy (nats) of a checkpoint directory on "val" or "test"."""
    if isinstance(config, dict):
        config = Config(**config)
    if split not in ("val", "test"):
        raise ValueError(f"split: {split!r}; allowed: val, test")
    model = load_model(config, checkpoint)
    accuracy, loss = score(model, *load(config.split_seed)[split])
    return {f"{split}_accuracy": accuracy, f"{split}_loss": loss}


def load_model(config: Config, checkpoint: Path) -> nn.Module:
    """The model in a checkpoint directory, in evaluation mode."""
    if isinstance(config, dict):
        config = Config(**config)
    check(config)
    model = build(config)
    model.load_state_dict(checkpointing.read(checkpoint)["model"])
    return model.eval()


def prepare(config: Config) -> dict[str, object]:
    """Check the configuration and that scikit-learn is there; replaces no parameter."""
    if isinstance(config, dict):
        config = Config(**config)
    check(config)
    load(config.split_seed)
    return {}


def checkpoint_bytes(config: Config) -> int:
    """Estimated size of one checkpoint in bytes; allocates no weights."""
    if isinstance(config, dict):
        config = Config(**config)
    check(config)
    with torch.device("meta"):
        model = build(config)
    return checkpointing.size_in_bytes(model, config.optimizer)


def check(config: Config) -> None:
    """Raise one `ValueError` that names every impossible value."""
    rules = {
        "epochs": (config.epochs >= 1, "at least 1"),
        "lr": (0 < config.lr < math.inf, "above 0"),
        "optimizer": (config.optimizer in ("sgd", "adam"), "sgd or adam"),
        "momentum": (0 <= config.momentum < 1, "in [0, 1)"),
        "hidden": (config.hidden >= 1, "at least 1"),
        "dropout": (0 <= config.dropout < 1, "in [0, 1)"),
        "weight_decay": (0 <= config.weight_decay < math.inf, "0 or more"),
        "batch_size": (config.batch_size >= 1, "at least 1"),
        "micro_batch": (config.micro_batch is None or config.micro_batch >= 1, "at least 1, or None"),
    }
    wrong = [f"{name}: {getattr(config, name)!r}, must be {rule}" for name, (ok, rule) in rules.items() if not ok]
    if wrong:
        raise ValueError("; ".join(wrong))


def build(config: Config) -> nn.Sequential:
    """One hidden layer: 64 pixels in, 10 logits out."""
    return nn.Sequential(
        nn.Linear(64, config.hidden),
        nn.ReLU(),
        nn.Dropout(config.dropout),
        nn.Linear(config.hidden, 10),
    )


def build_optimizer(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    """The chosen optimizer; its fused form does a step in one call."""
    common: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay, "fused": True}
    if config.optimizer == "sgd":
        momentum = config.momentum
        return torch.optim.SGD(model.parameters(), momentum=momentum, nesterov=momentum > 0, **common)
    return torch.optim.Adam(model.parameters(), **common)


def load(split_seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Parts "train", "val" and "test": float images n x 64 in -1..1 and int64 labels n.

    The test images are always the same; `split_seed` divides the rest.
    """
    from sklearn.datasets import load_digits  # slow to import, and only needed here

    pixels, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(pixels).float() / 8 - 1
    y = torch.from_numpy(labels).long()
    shuffled = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    test, rest = shuffled[:TEST_SIZE], shuffled[TEST_SIZE:]
    rest = rest[torch.randperm(len(rest), generator=torch.Generator().manual_seed(split_seed))]
    parts = {"train": rest[VAL_SIZE:], "val": rest[:VAL_SIZE], "test": test}
    return {name: (x[ids], y[ids]) for name, ids in parts.items()}


@torch.inference_mode()
def score(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Accuracy (0..1) and mean cross-entropy (nats)."""
    model.eval()
    logits = model(x)
    return (logits.argmax(1) == y).float().mean().item(), F.cross_entropy(logits, y).item()


if __name__ == "__main__":
    space = {"lr": tune.loguniform(1e-3, 1.0), "hidden": tune.choice([16, 64, 128]), "epochs": 20}
    results = tune.Tuner(train, param_space=space, tune_config=tune.TuneConfig(num_samples=4)).fit()
    print(results.get_best_result("val_accuracy", "max").metrics)
