"""Boosted trees of XGBoost on scikit-learn's breast cancer data, in a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import xgboost
from sklearn.datasets import load_breast_cancer

from tuner.integrations.xgboost import FILE_NAME, Report, collective, resume
from tuner.training import distributed
from tuner.training.distributed import Group


def data(rank: int = 0, size: int = 1) -> tuple[xgboost.DMatrix, xgboost.DMatrix]:
    x, y = load_breast_cancer(return_X_y=True)
    training, validation = slice(rank, 400, size), slice(400 + rank, None, size)
    return xgboost.DMatrix(x[training], y[training]), xgboost.DMatrix(x[validation], y[validation])


def train(config: dict[str, Any]) -> None:
    with distributed.group() as group, collective(group):
        fit(config, group)


def fit(config: dict[str, Any], group: Group) -> xgboost.Booster:
    training, validation = data(group.rank, group.size)
    return xgboost.train(
        {
            "objective": "binary:logistic",
            "eta": config["lr"],
            "max_depth": 3,
            "subsample": 0.5,
            "colsample_bytree": 0.5,
            "colsample_bynode": 0.5,
            "nthread": 1,
            **config.get("params", {}),
        },
        training,
        evals=[(validation, "val")],
        verbose_eval=False,
        callbacks=[Report(every=config.get("every", 1))],
        **resume(num_boost_round=config.get("epochs", 4)),
    )


def load_model(config: dict[str, Any], checkpoint: Path) -> xgboost.Booster:
    return xgboost.Booster(model_file=checkpoint / FILE_NAME)


def evaluate(config: dict[str, Any], checkpoint: Path) -> dict[str, float]:
    model = load_model(config, checkpoint)
    test = data()[1]
    return {"test_accuracy": float(((model.predict(test) > 0.5) == test.get_label()).mean())}
