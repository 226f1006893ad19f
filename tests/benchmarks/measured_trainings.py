"""Trainables for measured_curves.py: boosted trees, and a small transformer that learns to continue source code."""

from __future__ import annotations

import argparse
import inspect
import statistics
import textwrap
import typing
from typing import Any

import lightgbm
import torch
from ray import tune
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F

from trainables.tabular import mixture

ROUNDS, EVERY = 200, 4
EPOCHS, TOKENS = 50, 6144
"""Of the transformer; tokens of an epoch."""

_CONTEXT = 48


def trees(config: dict[str, Any]) -> None:
    """LightGBM on the generated table of `trainables.tabular`, or on one of scikit-learn's; 50 reports."""
    table = mixture() if config.pop("table") == "mixture" else load_breast_cancer(as_frame=True).frame
    x, y = table.drop(columns="target"), table["target"]
    x_train, x_val, y_train, y_val = train_test_split(x, y, test_size=0.4, random_state=0, stratify=y)
    training = lightgbm.Dataset(x_train, y_train)
    params = {
        **config,
        "objective": "multiclass",
        "num_class": y.nunique(),
        "bagging_freq": 1,
        "num_threads": 1,
        "verbose": -1,
    }
    validation = training.create_valid(x_val, y_val)
    lightgbm.train(params, training, ROUNDS, valid_sets=[validation], callbacks=[_report])


def _report(env: lightgbm.callback.CallbackEnv) -> None:
    """Without a checkpoint: nobody needs the models."""
    if (env.iteration + 1) % EVERY == 0:
        ((_, _, loss, _),) = env.evaluation_result_list
        tune.report({"epoch": env.iteration + 1, "val_loss": loss})


def transformer(config: dict[str, Any]) -> None:
    """Reports the cross-entropy of the next character on a held-out module, in nats, after each epoch."""
    torch.manual_seed(config["seed"])
    training, held_out = _text()
    model = Decoder(config["width"], config["layers"], config["heads"], config["dropout"])
    optimizer = torch.optim.AdamW(model.parameters(), config["lr"], weight_decay=config["weight_decay"], fused=True)
    steps = TOKENS // (_CONTEXT * config["batch_size"])
    warmup = max(1.0, config["warmup"] * EPOCHS * steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))
    draws = torch.Generator().manual_seed(config["seed"])
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for _ in range(steps):
            begins = torch.randint(len(training) - _CONTEXT - 1, (config["batch_size"],), generator=draws)
            optimizer.zero_grad()
            loss(model, training, begins).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.inference_mode():
            val_loss = loss(model, held_out, torch.arange(0, len(held_out) - _CONTEXT - 1, 2 * _CONTEXT)).item()
        tune.report({"epoch": epoch, "val_loss": val_loss})


def loss(model: Decoder, text: Tensor, begins: Tensor) -> Tensor:
    """The mean cross-entropy in the pieces of ``text`` that begin there."""
    pieces = text[begins[:, None] + torch.arange(_CONTEXT + 1)]
    return F.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())


def _text() -> tuple[Tensor, Tensor]:
    """For training, and held out: ASCII codes."""
    sources = [inspect.getsource(module) for module in (argparse, inspect, typing, textwrap)]
    training, held_out = (
        torch.tensor([min(ord(c), 127) for c in text]) for text in ("".join(sources), inspect.getsource(statistics))
    )
    return training, held_out[: 200 * _CONTEXT]


class Decoder(nn.Module):
    """Pre-norm blocks with causal attention."""

    def __init__(self, width: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(128, width), nn.Embedding(_CONTEXT, width)
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(_CONTEXT), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of each next character."""
        hidden = self.characters(x) + self.positions.weight
        output: Tensor = self.head(self.blocks(hidden, mask=self.mask, is_causal=True))
        return output
