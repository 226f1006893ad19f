"""scikit-learn: a trial that cross-validates an estimator, with the folds as fidelity.

    from tuner.integrations.sklearn import cross_validate

    cross_validate(HistGradientBoostingClassifier(**config), x, y, cv=5, scoring="roc_auc")

A scheduler with `time_attr: fold` stops a configuration after the first folds. The best trial is one of those with all
folds, as only these have a checkpoint: a mean over fewer folds is not compared with a mean over all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tuner.integrations.requirements import require

require("sklearn")

import numpy as np
import skops.io
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, indexable

from tuner.integrations import session

FILE_NAME = "model.skops"
"""The file of the estimator in the checkpoint of a trial, as `skops.io.dump` writes it."""


def cross_validate(
    estimator: BaseEstimator,
    x: Any,
    y: Any = None,
    *,
    groups: Any = None,
    cv: Any = 5,
    scoring: str | Callable[..., float] | None = None,
) -> dict[str, float]:
    """Fits and scores an estimator fold by fold; reports each fold to the trial, the last one with a checkpoint.

    Reported: `score`, the mean over the folds so far; `score_std`, their standard deviation; `fold_score`; `fold`,
    `epoch` and `step`, all three the number of finished folds. The checkpoint holds the estimator, fitted on all of the
    data. Under tuner a trial that is interrupted between two folds computes its folds again.

    Args:
        estimator: It is cloned for each fold. Give it a `random_state`, so that its folds can be computed again.
        x: The data, n rows.
        y: The targets, n of them.
        groups: The group of each row, for a `cv` that keeps groups together.
        cv: As in `sklearn.model_selection.cross_validate`; a number means that many folds, not shuffled.
        scoring: As in `sklearn.model_selection.cross_validate`: a name, or a callable; None for `estimator.score`.

    Returns:
        `score`, `score_std` and `fold` after the last fold.

    Raises:
        ValueError: From scikit-learn, if the data, `cv` or `scoring` do not fit the estimator.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from tuner.integrations.sklearn import cross_validate
        >>> result = cross_validate(DecisionTreeClassifier(random_state=0), *load_iris(return_X_y=True), cv=3)
        >>> result["fold"], round(result["score"], 2)
        (3, 0.97)
    """
    session.check_processes("scikit-learn", 1, "take workers out")
    x, y, groups = indexable(x, y, groups)
    scorer = check_scoring(estimator, scoring=scoring)
    folds = list(check_cv(cv, y, classifier=is_classifier(estimator)).split(x, y, groups))
    scores: list[float] = []
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="tuner-sklearn-") as folder:
        for number, (training, validation) in enumerate(folds, start=1):
            fitted = _fit(estimator, _rows(x, training), _rows(y, training))
            score = scorer(fitted, _rows(x, validation), _rows(y, validation))
            if isinstance(score, dict):
                raise ValueError(f"scoring: gives {len(score)} metrics ({', '.join(score)}); name one of them")
            scores.append(float(score))
            found = {"score": float(np.mean(scores)), "score_std": float(np.std(scores)), "fold": number}
            is_last = number == len(folds)
            if is_last:
                skops.io.dump(_fit(estimator, x, y), Path(folder, FILE_NAME))
            session.report(
                {**found, "fold_score": scores[-1], "epoch": number, "step": number}, Path(folder) if is_last else None
            )
    return found


def load_model(checkpoint: Path, trusted: Sequence[str] = ()) -> BaseEstimator:
    """Reads the estimator of a trial's checkpoint: what `evaluate(config, checkpoint)` needs.

    Args:
        checkpoint: The folder of the checkpoint.
        trusted: Names of types that may be read beside those of scikit-learn, as "xgboost.sklearn.XGBClassifier".

    Returns:
        The estimator, fitted on all of the data that `cross_validate` got.

    Raises:
        UntrustedTypesFoundException: From skops, if the file holds another type; the message names it.
    """
    file = checkpoint / FILE_NAME
    own = [name for name in skops.io.get_untrusted_types(file=file) if name.startswith("sklearn.")]
    return skops.io.load(file, trusted=[*own, *trusted])


def _fit(estimator: BaseEstimator, x: Any, y: Any) -> BaseEstimator:
    return clone(estimator).fit(x) if y is None else clone(estimator).fit(x, y)


def _rows(data: Any, rows: Any) -> Any:
    """Rows of an array, a data frame or a list."""
    return None if data is None else _safe_indexing(data, rows)
