"""A model that is too large for one GPU: weights, gradients and optimizer are divided among the processes of a trial.

Through tuner:          python -m tuner run experiments/accelerate_fsdp.yaml      (needs the extra "accelerate")

FSDP2 of torch (`fully_shard`; Y. Zhao et al., "PyTorch FSDP", 2023) through Accelerate, on a small transformer and
scikit-learn's handwritten digits: an image is a sequence of 8 rows. With `resources: {workers: 2, gpu: 1}` each process
has a GPU; with `gpu: 0` two CPU processes do the same by gloo. With one process nothing is divided.
"""

import dataclasses
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator, DistributedType, PartialState
from accelerate.utils import FullyShardedDataParallelPlugin, merge_fsdp_weights, set_seed
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from trainables import digits
from tuner.integrations.accelerate import report, resume

SHARDS = "pytorch_model_fsdp_0"
"""The folder of the divided weights in a checkpoint, as Accelerate names it."""


@dataclasses.dataclass
class Config:
    """Every argument of the training, with its default."""

    epochs: int = 9
    batch_size: int = 64  # over all processes of the trial
    lr: float = 1e-3
    weight_decay: float = 1e-2
    width: int = 64
    layers: int = 2
    seed: int = 0
    split_seed: int = 0  # chooses the held-out images: the same for every trial of a run


class RowTransformer(nn.Module):
    """A transformer encoder over the rows of an image, N x 64 in, N x 10 logits out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed = nn.Linear(8, config.width)
        self.position = nn.Parameter(torch.zeros(8, config.width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(config.width, 4, 2 * config.width, dropout=0.0, batch_first=True)
            for _ in range(config.layers)
        )
        self.head = nn.Linear(config.width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.unflatten(1, (8, 8))) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def accelerator_of() -> Accelerator:
    """An Accelerator that divides each encoder layer by itself."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["TransformerEncoderLayer"],
        state_dict_type="SHARDED_STATE_DICT",
    )
    accelerator = Accelerator(fsdp_plugin=plugin)
    if accelerator.distributed_type == DistributedType.MULTI_CPU:  # where Accelerate leaves the plugin out
        PartialState().distributed_type = accelerator.state.distributed_type = DistributedType.FSDP
        accelerator.state.fsdp_plugin = plugin
    return accelerator


def train(config: Config) -> None:
    """Trains one configuration; reports val_accuracy and val_loss after each epoch, with a checkpoint in parts."""
    if isinstance(config, dict):
        config = Config(**config)
    set_seed(config.seed)
    accelerator = accelerator_of()
    data = digits.load(config.split_seed)
    training = DataLoader(TensorDataset(*data["train"]), config.batch_size // accelerator.num_processes, shuffle=True)
    model = RowTransformer(config)
    optimizer = torch.optim.AdamW(model.parameters(), config.lr, weight_decay=config.weight_decay)
    model, optimizer, training = accelerator.prepare(model, optimizer, training)
    x, y = (part.to(accelerator.device) for part in data["val"])
    for epoch in range(resume(accelerator) + 1, config.epochs + 1):
        model.train()
        for images, labels in training:
            optimizer.zero_grad()
            accelerator.backward(F.cross_entropy(model(images), labels))
            optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(x)
        accuracy = (logits.argmax(1) == y).float().mean().item()
        report(accelerator, {"epoch": epoch, "val_accuracy": accuracy, "val_loss": F.cross_entropy(logits, y).item()})


def evaluate(config: Config, checkpoint: Path, split: str = "test") -> dict[str, float]:
    """Accuracy (0..1) and cross-entropy (nats) of a checkpoint on "val" or "test", in one process."""
    if isinstance(config, dict):
        config = Config(**config)
    accuracy, loss = digits.score(load_model(config, checkpoint), *digits.load(config.split_seed)[split])
    return {f"{split}_accuracy": accuracy, f"{split}_loss": loss}


def load_model(config: Config, checkpoint: Path) -> nn.Module:
    """The model in a checkpoint directory, whose parts are put together; on the CPU."""
    if isinstance(config, dict):
        config = Config(**config)
    model = RowTransformer(config)
    with tempfile.TemporaryDirectory() as folder:
        whole = checkpoint
        if (checkpoint / SHARDS).is_dir():
            whole = Path(folder)
            merge_fsdp_weights(str(checkpoint / SHARDS), folder)
        model.load_state_dict(load_file(whole / "model.safetensors"))
    return model.eval()
