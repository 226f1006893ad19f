"""Classification of a table by boosted trees or a random forest; the folds of a cross-validation are the fidelity.

Through tuner:          python -m tuner run experiments/tabular.yaml            (needs the extra "tabular")
Through plain Ray Tune: python -m trainables.tabular

A configuration that is bad on the first folds is stopped before the others. The last fold comes with a checkpoint: the
model, fitted on all rows that are not test rows.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from tuner.integrations.requirements import require

require("tabular", __name__)

import lightgbm
import numpy as np
import pandas as pd
import xgboost
from ray import tune
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import get_scorer, log_loss
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import LabelEncoder

from tuner.integrations import sklearn as integration
from tuner.training.data_errors import DataUnavailable

GENERATED = "mixture"
TYPES = (
    "collections.OrderedDict",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "xgboost.core.Booster",
    "xgboost.sklearn.XGBClassifier",
)
"""What a checkpoint may hold beside types of scikit-learn."""


@dataclasses.dataclass
class Config:
    """Every argument of the training, with its default."""

    data: str = GENERATED  # a .csv or .parquet file, or "mixture": generated, 3,000 rows
    target: str = "target"  # the column with the classes
    test_fraction: float = 0.25  # share of the rows that no fold sees
    folds: int = 5
    scoring: str = "neg_log_loss"  # any of scikit-learn's names
    model: Literal["xgboost", "lightgbm", "forest"] = "xgboost"
    trees: int = 200
    lr: float = 0.1  # of the boosted ones
    leaves: int = 31  # the most leaves of a tree
    min_leaf: int = 5  # rows in a leaf; for xgboost the least sum of second derivatives
    row_share: float = 1.0  # of the rows, for each tree
    column_share: float = 1.0  # of the columns, for each tree (forest: for each split)
    l2: float = 1.0  # on the values of the leaves, of the boosted ones
    threads: int = 1
    seed: int = 0  # of the model
    split_seed: int = 0  # of the test rows and the folds: the same for every trial of a run


def train(config: Config) -> None:
    """Cross-validates one configuration; reports `score`, the mean over the folds so far, after each fold."""
    if isinstance(config, dict):
        config = Config(**config)
    x, y = load(config)["train"]
    folds = StratifiedKFold(config.folds, shuffle=True, random_state=config.split_seed)
    integration.cross_validate(build(config), x, y, cv=folds, scoring=config.scoring)


def evaluate(config: Config, checkpoint: Path) -> dict[str, float]:
    """Accuracy (0..1), cross-entropy (nats) and the search's own score of a checkpoint on the test rows."""
    if isinstance(config, dict):
        config = Config(**config)
    x, y = load(config)["test"]
    model = load_model(config, checkpoint)
    return {
        "test_accuracy": float(model.score(x, y)),
        "test_loss": float(log_loss(y, model.predict_proba(x), labels=model.classes_)),
        "test_score": float(get_scorer(config.scoring)(model, x, y)),
    }


def load_model(config: Config, checkpoint: Path) -> Any:
    """The fitted classifier in a checkpoint directory."""
    return integration.load_model(checkpoint, TYPES)


def prepare(config: Config) -> dict[str, object]:
    """Runs once, before any trial: checks the configuration and the table."""
    if isinstance(config, dict):
        config = Config(**config)
    y = load(config)["train"][1]
    rarest = int(np.bincount(y).min())
    if not 2 <= config.folds <= rarest:
        raise ValueError(f"folds: {config.folds}, must be from 2 to {rarest}, the rows of the rarest class")
    build(config)
    return {} if config.data == GENERATED else {"data": str(Path(config.data).expanduser().resolve())}


def build(config: Config) -> Any:
    """The classifier; scikit-learn's interface is common to all three."""
    common = {"n_estimators": config.trees, "random_state": config.seed, "n_jobs": config.threads}
    boosted = {"learning_rate": config.lr, "reg_lambda": config.l2, "subsample": config.row_share, **common}
    if config.model == "xgboost":
        return xgboost.XGBClassifier(
            grow_policy="lossguide",
            max_depth=0,
            max_leaves=config.leaves,
            min_child_weight=config.min_leaf,
            colsample_bytree=config.column_share,
            **boosted,
        )
    if config.model == "lightgbm":
        return lightgbm.LGBMClassifier(
            num_leaves=config.leaves,
            min_child_samples=config.min_leaf,
            subsample_freq=1,
            colsample_bytree=config.column_share,
            verbose=-1,
            **boosted,
        )
    if config.model == "forest":
        return RandomForestClassifier(
            max_leaf_nodes=config.leaves,
            min_samples_leaf=config.min_leaf,
            max_features=config.column_share,
            max_samples=config.row_share,
            **common,
        )
    raise ValueError(f"model: {config.model!r}; allowed: xgboost, lightgbm, forest")


def load(config: Config) -> dict[str, tuple[pd.DataFrame, np.ndarray]]:
    """Parts "train" and "test": a frame of numbers, and classes 0..k-1.

    Columns of text become numbers, one a value, in alphabetical order. The same `split_seed` gives the same test rows.
    """
    table = mixture() if config.data == GENERATED else read(Path(config.data).expanduser())
    if config.target not in table:
        raise DataUnavailable(f"{config.data}: has no column {config.target!r} (target); has {', '.join(table)}")
    table = table[table[config.target].notna()]
    y = LabelEncoder().fit_transform(table.pop(config.target))
    if len(table.columns) == 0 or len(np.unique(y)) < 2:
        raise DataUnavailable(f"{config.data}: needs a column beside {config.target!r}, and two classes in it")
    x = table.apply(lambda column: column if column.dtype.kind in "biuf" else column.astype("category").cat.codes)
    parts = train_test_split(x, y, test_size=config.test_fraction, stratify=y, random_state=config.split_seed)
    return {"train": (parts[0], parts[2]), "test": (parts[1], parts[3])}


def read(file: Path) -> pd.DataFrame:
    """The table of a .csv or .parquet file."""
    readers = {".csv": pd.read_csv, ".parquet": pd.read_parquet}
    if file.suffix not in readers:
        raise DataUnavailable(f"data: {str(file)!r}; allowed: a .csv or .parquet file, or {GENERATED!r}")
    try:
        return readers[file.suffix](file)
    except (OSError, ValueError) as error:  # pandas' ParserError is a ValueError, and so is pyarrow's
        raise DataUnavailable(f"data: {file} cannot be read ({error})") from error


def mixture(rows: int = 3000) -> pd.DataFrame:
    """Three classes, each of four overlapping clouds, ten columns of which six tell something, and 5 % wrong labels."""
    rng = np.random.Generator(np.random.PCG64(7))
    centres = rng.normal(0, 1.6, (12, 6))
    cloud = rng.integers(0, 12, rows)
    x = np.hstack([centres[cloud] + rng.normal(0, 1.2, (rows, 6)), rng.normal(0, 1, (rows, 4))])
    y = np.where(rng.random(rows) < 0.05, rng.integers(0, 3, rows), cloud % 3)
    return pd.DataFrame(x, columns=[f"x{k}" for k in range(10)]).assign(target=y)


if __name__ == "__main__":
    space = {"lr": tune.loguniform(1e-2, 1.0), "leaves": tune.randint(4, 64)}
    results = tune.Tuner(train, param_space=space, tune_config=tune.TuneConfig(num_samples=4)).fit()
    print(results.get_best_result("score", "max").metrics)
