"""A tiny BERT, made from a configuration, in a `Trainer` in a trial: which of two tokens is more frequent?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from tuner.integrations.transformers import Report, batch_arguments, resume


class Sequences(Dataset[dict[str, Tensor]]):
    def __init__(self, count: int, seed: int) -> None:
        self.tokens = torch.randint(0, 4, (count, 9), generator=torch.Generator().manual_seed(seed))
        self.labels = ((self.tokens == 1).sum(1) > (self.tokens == 2).sum(1)).long()

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


def model(dropout: float = 0.1) -> BertForSequenceClassification:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    shared = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return BertForSequenceClassification(BertConfig(vocab_size=4, max_position_embeddings=9, **sizes, **shared))


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    """The mean over the whole batch: the classifiers of Transformers 5 leave the parts of a batch unscaled."""
    summed = F.cross_entropy(outputs.logits, labels, reduction="sum")
    return summed / (len(labels) if num_items_in_batch is None else num_items_in_batch)


def train(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    held_out = Sequences(64, seed=2)
    arguments = TrainingArguments(
        config.get("output_dir", "out"),
        use_cpu=True,
        num_train_epochs=config.get("epochs", 4),
        learning_rate=config["lr"],
        eval_strategy=config.get("eval_strategy", "epoch"),
        bf16=config.get("precision") == "bf16",
        load_best_model_at_end=config.get("load_best", False),
        save_strategy="epoch",
        report_to="none",
        disable_tqdm=True,
        **batch_arguments(config.get("batch_size", 32), config.get("micro_batch")),
    )
    trainer = Trainer(
        model(config.get("dropout", 0.1)),
        arguments,
        train_dataset=Sequences(128, seed=1),
        eval_dataset={"a": held_out, "b": Sequences(32, seed=4)} if config.get("eval_sets") else held_out,
        compute_metrics=accuracy,
        compute_loss_func=loss,
        callbacks=[Report()],
    )
    trainer.train(resume_from_checkpoint=resume())


def load_model(config: dict[str, Any], checkpoint: Path) -> BertForSequenceClassification:
    return BertForSequenceClassification.from_pretrained(checkpoint).eval()


def evaluate(config: dict[str, Any], checkpoint: Path) -> dict[str, float]:
    trained = load_model(config, checkpoint)
    test = Sequences(64, seed=3)
    with torch.inference_mode():
        right = trained(test.tokens).logits.argmax(-1) == test.labels
    return {"test_accuracy": right.float().mean().item()}
