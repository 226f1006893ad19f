"""Metrics that see whether rare classes are recognised; accuracy hardly does."""

from collections.abc import Sequence

import torch
from torch import Tensor


def balanced_accuracy(predictions: Sequence[int] | Tensor, labels: Sequence[int] | Tensor, classes: int) -> float:
    """Returns the mean over the classes of the share of its samples that are recognised.

    Guessing reaches 1 / classes, however rare some of them are. A class without labels does not count.

    Args:
        predictions: The predicted class of each sample, from 0.
        labels: The true class of each sample.
        classes: How many classes there are.

    Returns:
        A number from 0 to 1.

    Raises:
        ValueError: If the two do not have the same length, are empty, or hold a number that is not a class.

    Example:
        >>> from tuner.training.metrics import balanced_accuracy
        >>> balanced_accuracy([0, 0, 0, 0], [0, 0, 0, 1], classes=2)
        0.5
    """
    table = confusion(predictions, labels, classes).double()
    samples = table.sum(1)
    return float((table.diagonal()[samples > 0] / samples[samples > 0]).mean())


def macro_f1(predictions: Sequence[int] | Tensor, labels: Sequence[int] | Tensor, classes: int) -> float:
    """Returns the mean over the classes of F1, the harmonic mean of precision and recall.

    A class that is neither predicted nor a label does not count, as in scikit-learn's `f1_score(average="macro")`.

    Args:
        predictions: The predicted class of each sample, from 0.
        labels: The true class of each sample.
        classes: How many classes there are.

    Returns:
        A number from 0 to 1.

    Raises:
        ValueError: If the two do not have the same length, are empty, or hold a number that is not a class.

    Example:
        >>> from tuner.training.metrics import macro_f1
        >>> round(macro_f1([0, 0, 0, 0], [0, 0, 0, 1], classes=2), 3)
        0.429
    """
    table = confusion(predictions, labels, classes).double()
    both = table.sum(1) + table.sum(0)
    return float((2 * table.diagonal()[both > 0] / both[both > 0]).mean())


def confusion(predictions: Sequence[int] | Tensor, labels: Sequence[int] | Tensor, classes: int) -> Tensor:
    """Counts how often each class is taken for each; the counts of batches can be added.

    Args:
        predictions: The predicted class of each sample, from 0.
        labels: The true class of each sample.
        classes: How many classes there are.

    Returns:
        Integers, `classes` x `classes`: rows are labels, columns are predictions.

    Raises:
        ValueError: If the two do not have the same length, are empty, or hold a number that is not a class.

    Example:
        >>> from tuner.training.metrics import confusion
        >>> confusion([0, 0, 1], [0, 1, 1], classes=2).tolist()
        [[1, 0], [1, 1]]
    """
    given, true = torch.as_tensor(predictions).cpu(), torch.as_tensor(labels).cpu()
    if given.ndim != 1 or given.shape != true.shape or len(true) == 0:
        raise ValueError(f"predictions and labels: shapes {tuple(given.shape)} and {tuple(true.shape)}, must be equal")
    for name, values in (("predictions", given), ("labels", true)):
        if values.is_floating_point() or int(values.min()) < 0 or int(values.max()) >= classes:
            raise ValueError(f"{name}: must be integers from 0 to {classes - 1}")
    return torch.bincount(true.long() * classes + given.long(), minlength=classes**2).view(classes, classes)
