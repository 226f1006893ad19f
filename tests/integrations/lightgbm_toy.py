"""Boosted trees of LightGBM on scikit-learn's breast cancer data, in a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
from sklearn.datasets import load_breast_cancer

from tuner.integrations.lightgbm import FILE_NAME, network, train_arguments
from tuner.training import distributed
from tuner.training.distributed import Group


def train(config: dict[str, Any]) -> None:
    with distributed.group() as group:
        fit(config, group)


def fit(config: dict[str, Any], group: Group) -> lightgbm.Booster:
    x, y = load_breast_cancer(return_X_y=True)
    rows = slice(group.rank, 400, group.size)
    training = lightgbm.Dataset(x[rows], y[rows])
    return lightgbm.train(
        {
            "objective": "binary",
            "learning_rate": config["lr"],
            "num_leaves": 7,
            "bagging_fraction": 0.5,
            "bagging_freq": config.get("bagging_freq", 1),
            "feature_fraction": 0.5,
            "feature_fraction_bynode": 0.7,
            "extra_trees": True,
            "num_threads": 1,
            "verbose": -1,
            **network(group),
            **config.get("params", {}),
        },
        training,
        valid_sets=[lightgbm.Dataset(x[400:], y[400:], reference=training)],
        **train_arguments(config.get("epochs", 4), every=config.get("every", 1), callbacks=config.get("callbacks", ())),
    )


def load_model(config: dict[str, Any], checkpoint: Path) -> lightgbm.Booster:
    return lightgbm.Booster(model_file=checkpoint / FILE_NAME)


def evaluate(config: dict[str, Any], checkpoint: Path) -> dict[str, float]:
    x, y = load_breast_cancer(return_X_y=True)
    model = load_model(config, checkpoint)
    return {"test_accuracy": float(((model.predict(x[400:]) > 0.5) == y[400:]).mean())}
