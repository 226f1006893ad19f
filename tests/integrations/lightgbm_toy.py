"""Boosted trees of LightGBM on scikit-learn's breast cancer data, in a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
from sklearn.datasets import load_breast_cancer

from tuner.integrations.lightgbm import FILE_NAME, train_arguments


def train(config: dict[str, Any]) -> None:
    x, y = load_breast_cancer(return_X_y=True)
    training = lightgbm.Dataset(x[:400], y[:400])
    lightgbm.train(
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
            **config.get("params", {}),
        },
        training,
        valid_sets=[lightgbm.Dataset(x[400:], y[400:], reference=training)],
        **train_arguments(config.get("epochs", 4), every=config.get("every", 1), callbacks=config.get("callbacks", ())),
    )


def evaluate(config: dict[str, Any], checkpoint: Path) -> dict[str, float]:
    x, y = load_breast_cancer(return_X_y=True)
    model = lightgbm.Booster(model_file=checkpoint / FILE_NAME)
    return {"test_accuracy": float(((model.predict(x[400:]) > 0.5) == y[400:]).mean())}
