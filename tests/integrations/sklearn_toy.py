"""A random forest of scikit-learn on its breast cancer data, cross-validated in a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tuner.integrations import sklearn as integration


def train(config: dict[str, Any]) -> None:
    forest = RandomForestClassifier(n_estimators=5, max_features=config["lr"] * 10, random_state=0)
    x, y = load_breast_cancer(return_X_y=True, as_frame=True)
    integration.cross_validate(make_pipeline(StandardScaler(), forest), x[:400], y[:400], cv=config.get("epochs", 4))


def load_model(config: dict[str, Any], checkpoint: Path) -> Any:
    return integration.load_model(checkpoint)


def evaluate(config: dict[str, Any], checkpoint: Path) -> dict[str, float]:
    x, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return {"test_accuracy": float(load_model(config, checkpoint).score(x[400:], y[400:]))}
