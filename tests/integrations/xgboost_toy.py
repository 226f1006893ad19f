"""Boosted trees of XGBoost on scikit-learn's breast cancer data, in a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import xgboost
from sklearn.datasets import load_breast_cancer

from tuner.integrations.xgboost import FILE_NAME, Report, resume


def data() -> tuple[xgboost.DMatrix, xgboost.DMatrix]:
    x, y = load_breast_cancer(return_X_y=True)
    return xgboost.DMatrix(x[:400], y[:400]), xgboost.DMatrix(x[400:], y[400:])


def train(config: dict[str, Any]) -> None:
    training, validation = data()
    xgboost.train(
        {
            "objective": "binary:logistic",
            "eta": config["lr"],
            "max_depth": 3,
            "subsample": 0.5,
            "colsample_bytree": 0.5,
            "colsample_bynode": 0.5,
            "nthread": 1,
        },
        training,
        evals=[(validation, "val")],
        verbose_eval=False,
        callbacks=[Report(every=config.get("every", 1))],
        **resume(num_boost_round=config.get("epochs", 4)),
    )


def evaluate(config: dict[str, Any], checkpoint: Path) -> dict[str, float]:
    model = xgboost.Booster(model_file=checkpoint / FILE_NAME)
    test = data()[1]
    return {"test_accuracy": float(((model.predict(test) > 0.5) == test.get_label()).mean())}
